"""Figures, reports and provenance over REST: permalinks that need no page.

/v1/experiments/{id}/figures                 the names of an experiment's figures
/v1/experiments/{id}/figures/{name}.{form}   one of them as SVG, PNG, PDF, HTML, CSV or JSON
/v1/experiments/{id}/report                  one HTML file with method, tables, figures and provenance
/v1/experiments/{id}/provenance              specification, data, code, machines and time
/v1/experiments/{id}/references.bib          what to cite
/v1/experiments/{id}/document.json           everything that is known of it, but for the series of its runs
"""

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response

from api.records import Page
from api.routes.context import (
    AnalysisDependency,
    ExperimentIdPath,
    ExperimentsDependency,
    RunsDependency,
    problems,
    the_services,
)
from dashboards.data.reader import Reader
from dashboards.figures.registry import FigureName
from dashboards.files.bibliography import bibtex, references
from dashboards.files.figures import MEDIA_TYPES, FigureFiles, FileForm, write
from dashboards.files.report import report
from dashboards.palette import ThemeName
from dashboards.view_state import ViewState
from orchestrator.export.document import ExperimentDocument, document
from orchestrator.export.provenance import Provenance, provenance

router = APIRouter(prefix="/experiments", tags=["figures and reports"])

TEXT = "; charset=utf-8"


def the_files(request: Request) -> FigureFiles:
    """The figures of this app, made when the first one is asked for."""
    state = request.app.state
    if not hasattr(state, "figure_files"):
        services = the_services(request)
        reader = Reader(services.experiments, services.runs, services.analysis)
        state.figure_files = FigureFiles(reader)
    files = state.figure_files
    assert isinstance(files, FigureFiles)
    return files


Files = Annotated[FigureFiles, Depends(the_files)]


@router.get("/{experiment_id}/figures", responses=problems(404))
def figure_names(
    experiment_id: ExperimentIdPath,
    experiments: ExperimentsDependency,
    files: Files,
    cell: Annotated[str, Query(max_length=80)] = "",
) -> Page[str]:
    """The figures that the experiment has; of a scaling experiment those of its law, or of a cell."""
    return Page(items=files.names(experiments.get(experiment_id), cell))


@router.get(
    "/{experiment_id}/figures/{name}.{form}",
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
    files: Files,
    theme: ThemeName = "light",
    download: bool = False,
) -> Response:
    """A figure as a file; the query takes what the page's address does: x, part, log, rates, hide, cell."""
    view = ViewState.parse(request.query_params.multi_items())
    body = write(files.picture(experiment_id, name, view, theme), form, theme)
    headers = {"Content-Disposition": f'attachment; filename="{experiment_id}-{name}.{form}"'} if download else {}
    if form == "html":
        headers["Content-Disposition"] = f'attachment; filename="{experiment_id}-{name}.html"'
    return Response(body, media_type=MEDIA_TYPES[form], headers=headers | {"Cache-Control": "no-cache"})


@router.get(
    "/{experiment_id}/report",
    response_class=Response,
    responses={200: {"description": "The report.", "content": {"text/html": {}}}, **problems(404)},
)
def experiment_report(experiment_id: ExperimentIdPath, request: Request, files: Files) -> Response:
    """One self-contained HTML file: answer, figures, method, runs, provenance, bibliography."""
    text = report(files, experiment_id, request.app.version)
    headers = {"Content-Disposition": f'attachment; filename="{experiment_id}-report.html"'}
    return Response(text, media_type=f"text/html{TEXT}", headers=headers)


@router.get("/{experiment_id}/provenance", responses=problems(404))
def experiment_provenance(
    experiment_id: ExperimentIdPath, experiments: ExperimentsDependency, runs: RunsDependency, request: Request
) -> Provenance:
    """Where the experiment's figures come from."""
    return provenance(experiments.get(experiment_id), runs.all(experiment_id), request.app.version)


@router.get(
    "/{experiment_id}/references.bib",
    response_class=Response,
    responses={200: {"description": "BibTeX.", "content": {"application/x-bibtex": {}}}, **problems(404)},
)
def bibliography(
    experiment_id: ExperimentIdPath, experiments: ExperimentsDependency, runs: RunsDependency, request: Request
) -> Response:
    """The bench, the experiment, and the paper of every optimizer in it."""
    experiment = experiments.get(experiment_id)
    commits = provenance(experiment, runs.all(experiment_id), request.app.version).commits
    text = bibtex(references(experiment, request.app.version, commits[0] if commits else None))
    headers = {"Content-Disposition": f'attachment; filename="{experiment_id}.bib"'}
    return Response(text, media_type=f"application/x-bibtex{TEXT}", headers=headers)


@router.get("/{experiment_id}/document.json", responses=problems(404))
def experiment_document(
    experiment_id: ExperimentIdPath,
    experiments: ExperimentsDependency,
    runs: RunsDependency,
    analysis: AnalysisDependency,
    request: Request,
) -> ExperimentDocument:
    """Specification, provenance, answer and every run with its result, as one JSON document."""
    experiment, all_runs = experiments.get(experiment_id), tuple(runs.all(experiment_id))
    return document(experiment, all_runs, analysis, request.app.version)
