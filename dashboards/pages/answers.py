"""Answers that are a figure: what Plotly draws on the page, or the same as a file, by the ending of the address.

/experiments/{id}/figures/curves.json ─► for Plotly.react     …/curves.svg (png, pdf, html, csv) ─► saved as a file
"""

from typing import Any

from fastapi import Response
from fastapi.responses import JSONResponse

from dashboards.figures.base import Figure
from dashboards.files.figures import MEDIA_TYPES, FileForm, Picture, write
from dashboards.files.publication import SUFFIXES, TABLE_MEDIA_TYPES, TableFormat, publish
from dashboards.palette import ThemeName
from orchestrator.records import Comparison


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


def table_file(comparison: Comparison, form: TableFormat) -> Response:
    """The comparison's table, named after the experiment's id: names that users chose never reach a header."""
    name = f"comparison-{comparison.experiment_id}.{SUFFIXES[form]}"
    return Response(
        publish(comparison, form),
        media_type=f"{TABLE_MEDIA_TYPES[form]}; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )
