"""An experiment as files over REST, permalinks that need no page: tables of results and series, figures, reports.

/v1/experiments/{id}/exports/{name}          results, or the series of its runs, as Parquet or CSV; of a run as well
/v1/runs/{id}/files, /v1/runs/{id}/files/{name}   what there is of a run beside its points: logs, checkpoints, …
/v1/experiments/{id}/figures                 the names of an experiment's figures
/v1/experiments/{id}/figures/{name}.{form}   one of them as SVG, PNG, PDF, HTML, CSV or JSON
/v1/experiments/{id}/report                  one HTML file with method, tables, figures and provenance
/v1/experiments/{id}/references.bib          what to cite
/v1/experiments/{id}/document.json           everything that is known of it, but for the series of its runs
"""

import tempfile
from collections.abc import Iterator
from typing import IO, Annotated, Literal

from fastapi import APIRouter, Path, Request, Response
from fastapi.responses import StreamingResponse

from api.records import Page
from api.routes.context import CellQuery, ExperimentIdPath, JsonRoute, RunIdPath, State, problems
from dashboards.figures.registry import FigureName
from dashboards.files.bibliography import bibtex, references
from dashboards.files.figures import MEDIA_TYPES, FileForm, write
from dashboards.files.report import report
from dashboards.palette import ThemeName
from dashboards.view_state import ViewState
from orchestrator.export.cells import Format
from orchestrator.export.document import ExperimentDocument, document, provenance
from orchestrator.records import RunFile, RunRecord
from orchestrator.services.runs import Runs

router = APIRouter(route_class=JsonRoute)

TEXT = "; charset=utf-8"
ExportName = Literal["results.parquet", "results.csv", "series.parquet", "series.csv"]

EXPORT_MEDIA_TYPES = {Format.PARQUET: "application/vnd.apache.parquet", Format.CSV: "text/csv; charset=utf-8"}
PIECE_BYTES = 1 << 20
BINARY = "application/octet-stream"
RunFileName = Annotated[str, Path(max_length=64, pattern=r"^[a-z][a-z0-9-]*\.(json|log|pt)$")]

FILE = {200: {"description": "The file.", "content": {media: {} for media in EXPORT_MEDIA_TYPES.values()}}}


@router.get(
    "/experiments/{experiment_id}/exports/{name}",
    tags=["exports"],
    response_class=StreamingResponse,
    responses={**FILE, **problems(404)},  # type: ignore[dict-item]  # FastAPI's type is wider than either
)
def experiment_export(experiment_id: ExperimentIdPath, name: ExportName, state: State) -> StreamingResponse:
    """Return a row for each run (`results`), or for each point of each run (`series`)."""
    state.services.experiments.get(experiment_id)  # one that does not exist is not an empty file
    runs = state.services.runs
    return _export_file(runs, runs.read_all(experiment_id), name, f"{experiment_id}-{name}")


@router.get(
    "/runs/{run_id}/exports/{name}",
    tags=["exports"],
    response_class=StreamingResponse,
    responses={**FILE, **problems(404)},  # type: ignore[dict-item]  # as above
)
def run_export(run_id: RunIdPath, name: ExportName, state: State) -> StreamingResponse:
    """Return the run's result (`results`), or a row for each of its points (`series`)."""
    return _export_file(state.services.runs, iter([state.services.runs.get(run_id)]), name, f"{run_id}-{name}")


@router.get("/runs/{run_id}/files", tags=["runs"], responses=problems(404))
def run_files(run_id: RunIdPath, state: State) -> Page[RunFile]:
    """List the run's specification, result, logs and kept checkpoints; its points are an export."""
    return Page(items=state.services.runs.files(run_id))


@router.get(
    "/runs/{run_id}/files/{name}",
    tags=["runs"],
    response_class=StreamingResponse,
    responses={200: {"description": "The file.", "content": {BINARY: {}}}, **problems(404)},
)
def run_file(run_id: RunIdPath, name: RunFileName, state: State) -> StreamingResponse:
    """Return one of these files as it is."""
    file, size_bytes = state.services.runs.open_file(run_id, name)
    headers = {
        "Content-Disposition": f'attachment; filename="{run_id}-{name}"',
        "Content-Length": str(size_bytes),
        "X-Content-Type-Options": "nosniff",
    }
    return StreamingResponse(_pieces(file, size_bytes), media_type=BINARY, headers=headers)


def _export_file(source: Runs, runs: Iterator[RunRecord], name: ExportName, filename: str) -> StreamingResponse:
    table, _, ending = name.partition(".")
    form = Format(ending)
    # A file without a name: however the answer ends, nothing is left on the disk.
    file = tempfile.TemporaryFile()  # noqa: SIM115 - `_pieces` closes it, after the last byte was sent
    from orchestrator.export.files import write_results, write_series  # pyarrow: a quarter of a second and 50 MB

    if table == "results":
        write_results(runs, file, form)
    else:
        write_series(source.series, runs, file, form)
    size_bytes = file.tell()
    headers = {"Content-Disposition": f'attachment; filename="{filename}"', "Content-Length": str(size_bytes)}
    file.seek(0)
    return StreamingResponse(_pieces(file, size_bytes), media_type=EXPORT_MEDIA_TYPES[form], headers=headers)


def _pieces(file: IO[bytes], size_bytes: int) -> Iterator[bytes]:
    """Yield exactly that many bytes of it: a log grows meanwhile."""
    with file:
        while size_bytes and (piece := file.read(min(PIECE_BYTES, size_bytes))):
            size_bytes -= len(piece)
            yield piece


@router.get("/experiments/{experiment_id}/figures", tags=["figures and reports"], responses=problems(404))
def figure_names(
    experiment_id: ExperimentIdPath,
    state: State,
    cell: CellQuery = None,
) -> Page[str]:
    """List the figures that the experiment has; of a scaling experiment those of its law, or of a cell."""
    return Page(items=state.figure_files.names(state.services.experiments.get(experiment_id), cell or ""))


@router.get(
    "/experiments/{experiment_id}/figures/{name}.{form}",
    tags=["figures and reports"],
    response_class=Response,
    responses={
        200: {"description": "The figure.", "content": {kind: {} for kind in MEDIA_TYPES.values()}},
        **problems(404, 409),
    },
)
def figure(
    experiment_id: ExperimentIdPath,
    name: FigureName,
    form: FileForm,
    request: Request,
    state: State,
    theme: ThemeName = "light",
    download: bool = False,
) -> Response:
    """Return a figure as a file; the query takes what the page's address does: x, part, log, rates, hide, cell."""
    view = ViewState.parse(request.query_params.multi_items())
    body = write(state.figure_files.picture(experiment_id, name, view, theme), form, theme)
    headers = {"Content-Disposition": f'attachment; filename="{experiment_id}-{name}.{form}"'} if download else {}
    if form == "html":
        headers["Content-Disposition"] = f'attachment; filename="{experiment_id}-{name}.html"'
    return Response(body, media_type=MEDIA_TYPES[form], headers=headers | {"Cache-Control": "no-cache"})


@router.get(
    "/experiments/{experiment_id}/report",
    tags=["figures and reports"],
    response_class=Response,
    responses={200: {"description": "The report.", "content": {"text/html": {}}}, **problems(404)},
)
def experiment_report(experiment_id: ExperimentIdPath, request: Request, state: State) -> Response:
    """Return a self-contained HTML file: answer, figures, method, runs, provenance, bibliography."""
    text = report(state.figure_files, experiment_id, request.app.version)
    headers = {"Content-Disposition": f'attachment; filename="{experiment_id}-report.html"'}
    return Response(text, media_type=f"text/html{TEXT}", headers=headers)


@router.get(
    "/experiments/{experiment_id}/references.bib",
    tags=["figures and reports"],
    response_class=Response,
    responses={200: {"description": "BibTeX.", "content": {"application/x-bibtex": {}}}, **problems(404)},
)
def bibliography(experiment_id: ExperimentIdPath, state: State, request: Request) -> Response:
    """Return citations of the bench, the experiment, and the paper of every optimizer in it."""
    experiment = state.services.experiments.get(experiment_id)
    commits = provenance(experiment, state.services.runs.read_all(experiment_id), request.app.version).commits
    text = bibtex(references(experiment, request.app.version, commits[0] if commits else None))
    headers = {"Content-Disposition": f'attachment; filename="{experiment_id}.bib"'}
    return Response(text, media_type=f"application/x-bibtex{TEXT}", headers=headers)


@router.get("/experiments/{experiment_id}/document.json", tags=["figures and reports"], responses=problems(404))
def experiment_document(
    experiment_id: ExperimentIdPath,
    state: State,
    request: Request,
) -> ExperimentDocument:
    """Return specification, provenance, answer and every run with its result, as one JSON document."""
    services = state.services
    experiment, runs = services.experiments.get(experiment_id), tuple(services.runs.read_all(experiment_id))
    return document(experiment, runs, services.analysis, request.app.version)
