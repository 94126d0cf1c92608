"""Figures as files: SVG, PNG and PDF (`vector.py`), HTML that needs nothing else, CSV, JSON.

    a name and a view ─► the figure of the page, as a dict ─► a file that is the same for the same figure

At a page's address the ending says what is answered: `curves.json` is for Plotly.react, `curves.svg` is a file.
"""

import base64
import csv
import hashlib
import io
import json
from dataclasses import dataclass
from typing import Any, Literal

from fastapi import Request, Response
from fastapi.responses import JSONResponse

from dashboards.assets import plotly_script
from dashboards.data.reader import Reader, candidate_styles
from dashboards.figures.base import ExperimentView, Figure
from dashboards.figures.registry import FIGURES, LAW_FIGURES, PANEL
from dashboards.files.publication import SUFFIXES, TABLE_MEDIA_TYPES, TableFormat, publish
from dashboards.files.traces import FigureError, VectorFormat, as_list, letters
from dashboards.palette import ThemeName
from dashboards.render import environment
from dashboards.view_state import ViewState
from orchestrator.analysis.cells import select_cell
from orchestrator.export.cells import spreadsheet_safe
from orchestrator.kinds.experiment import AnswerKind
from orchestrator.records import Comparison, ExperimentRecord

FileForm = Literal["svg", "png", "pdf", "html", "csv", "json"]
MEDIA_TYPES: dict[FileForm, str] = {
    "svg": "image/svg+xml",
    "png": "image/png",
    "pdf": "application/pdf",
    "html": "text/html; charset=utf-8",
    "csv": "text/csv; charset=utf-8",
    "json": "application/json",
}


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A figure with what it is called."""

    title: str
    figure: Figure


class FigureFiles:
    """Figures by name, for files and reports. Thread-safe."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader

    def names(self, experiment: ExperimentRecord, cell: str = "") -> tuple[str, ...]:
        """Return the figures that an experiment has; of a scaling experiment those of its law, or of a cell. Raises
        `NotFoundError` for a cell that it has not."""
        if cell:
            select_cell(experiment, (), cell)
        return tuple(entry.name for entry in FIGURES[AnswerKind.COMPARISON if cell else experiment.spec.answer])

    def picture(
        self,
        experiment_id: str,
        name: str,
        view: ViewState,
        theme: ThemeName = "light",
        *,
        narrow: bool = False,
        candidate: str = "",
        panel: str = "",
    ) -> Picture:
        """Return a figure, as `ExperimentView` says; raises `NotFoundError`, and `FigureError` for a name that this
        kind of experiment lacks."""
        experiment = self.reader.experiments.get(experiment_id)
        answers = (experiment.spec.answer, *((AnswerKind.COMPARISON,) if experiment.spec.cells() else ()))
        entry = next((entry for answer in answers for entry in (*FIGURES[answer], PANEL) if entry.name == name), None)
        if entry is None:
            figure_names = ", ".join(self.names(experiment))
            raise FigureError(f"a {experiment.kind} has no figure {name!r}; it has {figure_names}")
        if entry in LAW_FIGURES:
            figure = entry.draw(self.reader.law([experiment]), candidate_styles(experiment), theme, view.hidden)
            return Picture(title=f"{entry.title} · {experiment.name}", figure=figure)
        snapshot = self.reader.snapshot(experiment_id, view.cell, baseline=view.baseline)
        drawn = ExperimentView(
            reader=self.reader,
            snapshot=snapshot,
            state=view,
            theme=theme,
            narrow=narrow,
            candidate=candidate,
            panel=panel,
        )
        return Picture(title=f"{entry.title} · {snapshot.experiment.name}", figure=entry.draw(drawn))


def write(picture: Picture, form: FileForm, theme: ThemeName = "light") -> bytes:
    """Return the figure as a file; raises `FigureError` if it cannot be drawn as one."""
    if form == "csv":
        return figure_csv(picture.figure).encode()
    if form == "json":
        return json.dumps(picture.figure, allow_nan=False).encode()
    if form == "html":
        return figure_html(picture, theme).encode()
    return draw(picture.figure, form, title=picture.title, theme=theme)


def draw(figure: Figure, form: VectorFormat, *, title: str = "", theme: ThemeName = "light") -> bytes:
    """Return the figure as matplotlib draws it. Raises `FigureError` for an unknown kind of trace."""
    from dashboards.files.vector import vector  # matplotlib, half a second

    return vector(figure, form, title=title, theme=theme)


CSV_HEAD = ("trace", "name", "mode", "x", "y", "y_minus", "y_plus", "x_minus", "x_plus", "label", "text")


def figure_csv(figure: Figure) -> str:
    """Return a line per point: the name of what is drawn, x, y, error bars and words where there are any."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\r\n")
    writer.writerow(CSV_HEAD)
    for number, trace in enumerate(figure["data"]):
        count = len(trace["x"])
        kind = "band edge" if trace.get("line", {}).get("width") == 0 else trace.get("mode", trace["type"])
        name = spreadsheet_safe(letters(str(trace.get("name", ""))))
        columns = (
            trace["x"],
            trace["y"],
            *_spread(trace.get("error_y"), count),
            *_spread(trace.get("error_x"), count),
            as_list(trace.get("customdata"), count),
            as_list(trace.get("text"), count),
        )
        for row in zip(*columns, strict=True):
            writer.writerow((number, name, kind, *map(_cell, row)))
    return buffer.getvalue()


def _spread(error: dict[str, Any] | None, count: int) -> tuple[list[Any], list[Any]]:
    """Return the errors (below, above) of each point; a symmetric error is returned for both sides."""
    upper_errors = error["array"] if error else [None] * count
    return (error or {}).get("arrayminus", upper_errors), upper_errors


def figure_html(picture: Picture, theme: ThemeName) -> str:
    """Return a page that draws itself without any other file: Plotly.js inside, and a policy that lets nothing else
    in."""
    plotly = plotly_script()
    figure = json.dumps(picture.figure, allow_nan=False).replace("<", "\\u003c")
    draw = f"const {{data, layout}} = {figure}; Plotly.newPlot('figure', data, layout, {{responsive: true}});"
    return (
        environment()
        .get_template("files/figure_file.html")
        .render(
            title=picture.title, theme=theme, plotly=plotly, draw=draw, hashes=[script_hash(plotly), script_hash(draw)]
        )
    )


def script_hash(script: str) -> str:
    """Return the hash by which a Content-Security-Policy allows an inline script."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def _cell(value: Any) -> Any:
    return spreadsheet_safe(letters(value)) if isinstance(value, str) else value


def unchanged_answer(tag: str, request: Request) -> Response | None:
    """Return the answer to a client that has the current version; None if the figure must be drawn."""
    return Response(status_code=304, headers={"ETag": tag}) if request.headers.get("if-none-match") == tag else None


def figure_answer(
    figure: Figure, form: FileForm, theme: ThemeName, *, name: str, title: str = "", tag: str | None = None
) -> Response:
    """Return a figure that browsers ask for anew, with the `tag` of what it shows; `name` is its file's, of our own
    words."""
    headers: dict[str, Any] = {"Cache-Control": "no-cache"} | ({"ETag": tag} if tag else {})
    if form == "json":
        return JSONResponse(figure, headers=headers)
    headers["Content-Disposition"] = f'attachment; filename="{name}.{form}"'
    body = write(Picture(title=title, figure=figure), form, theme)
    return Response(body, media_type=MEDIA_TYPES[form], headers=headers)


def table_file(comparison: Comparison, form: TableFormat) -> Response:
    """Return the comparison's table, named after the experiment's id: names that users chose never reach a header."""
    name = f"comparison-{comparison.experiment_id}.{SUFFIXES[form]}"
    return Response(
        publish(comparison, form),
        media_type=f"{TABLE_MEDIA_TYPES[form]}; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )
