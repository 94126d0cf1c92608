"""Answers that are a figure: what Plotly draws on the page, or the same as a file, by the ending of the address.

/experiments/{id}/figures/curves.json ─► for Plotly.react     …/curves.svg (png, pdf, html, csv) ─► saved as a file
"""

from typing import Any

from fastapi import Response
from fastapi.responses import JSONResponse

from dashboards.drawing import Figure
from dashboards.figure_files import MEDIA_TYPES, FileForm, Picture, write
from dashboards.palette import ThemeName


def figure_answer(
    figure: Figure, form: FileForm, theme: ThemeName, *, name: str, title: str = "", tag: str | None = None
) -> Response:
    """A figure that browsers ask for anew, with the `tag` of what it shows; `name` is its file's, of our own words."""
    headers: dict[str, Any] = {"Cache-Control": "no-cache"} | ({"ETag": tag} if tag else {})
    if form == "json":
        return JSONResponse(figure, headers=headers)
    headers["Content-Disposition"] = f'attachment; filename="{name}.{form}"'
    body = write(Picture(name=name, title=title, figure=figure), form, theme)
    return Response(body, media_type=MEDIA_TYPES[form], headers=headers)
