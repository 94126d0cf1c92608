"""Pages of scaling laws and performance profiles.

/experiments/{id}                        of a scaling experiment: law, predictions, a comparison for each size
/experiments/{id}/figures/law.{form}     and residuals.{form}
/fits?experiments=a,b                    the laws over several experiments
/fits/figures/{name}.{form}
/profiles?experiments=a,b                performance profiles over several comparisons
"""

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse

from dashboards.data.panels import Panel, edited_address, experiment_fields, page_panels
from dashboards.data.reader import Reader, candidate_styles
from dashboards.figures.registry import LAW_FIGURES, LawFigure
from dashboards.files.figures import FileForm, figure_answer
from dashboards.pages.curation import or_not_found_page
from dashboards.palette import ThemeName
from dashboards.render import page, refused_page
from dashboards.text.answers import law_headline, profile_headline
from orchestrator.analysis.laws.fit import FitError
from orchestrator.analysis.laws.records import FitReport
from orchestrator.analysis.laws.targets import is_target
from orchestrator.errors import ConflictError, NotFoundError
from orchestrator.external_runs import ExternalExperiment
from orchestrator.records import ExperimentRecord
from orchestrator.services.analysis import MOST_EXPERIMENTS
from orchestrator.services.monitor import Monitor
from worker.words import pluralize

MOST_TARGETS = 8


class FitPages:
    """The handlers of pages and figures of several sizes."""

    def __init__(self, reader: Reader, monitor: Monitor) -> None:
        self._reader, self._experiments, self._monitor = reader, reader.experiments, monitor

    def router(self) -> APIRouter:
        """Return the addresses of this file, but for those under an experiment."""
        router = APIRouter(include_in_schema=False)
        router.get("/fits")(or_not_found_page(self._experiments, self.fits))
        router.get("/fits/figures/{name}.{form}")(self.fits_figure)
        router.get("/profiles")(or_not_found_page(self._experiments, self.profiles))
        return router

    def scaling_page(self, experiment: ExperimentRecord, request: Request) -> Response:
        """Return a scaling experiment."""
        version = self._experiments.version(experiment.id)
        pairs, path = request.query_params.multi_items(), f"/experiments/{experiment.id}"
        if (edited := edited_address(path, pairs)) is not None:
            return RedirectResponse(edited, status_code=303)
        cells = self._reader.analysis.cells(experiment.id)
        figures = f"{path}/figures/panel.json"
        return page(
            "experiments/scaling.html",
            version=version,
            experiment=experiment,
            cells=cells,
            titles={row.candidate: row.title for row in cells[-1].comparison.rows},
            dispatch_blocker=self._monitor.dispatch_blocker(),
            panels=page_panels(path, pairs, figures, experiment_fields(experiment.spec), Panel(by="model")),
            **self._law([experiment], _targets(request), "?"),
        )

    def fits(self, request: Request) -> HTMLResponse:
        """Return the laws over the experiments that the query names."""
        try:
            experiments = self._requested_experiments(request)
            law = self._law(experiments, _targets(request), f"{_address('', experiments)}&")
        except ConflictError as error:
            return refused_page(409, "No scaling law for these experiments", str(error))
        sentence = law_headline(law["report"]) if law["report"] else law["refusal"]
        return page(
            "experiments/together.html", heading="Scaling laws", headline=sentence, experiments=experiments, **law
        )

    def fits_figure(self, name: LawFigure, form: FileForm, request: Request, theme: ThemeName = "light") -> Response:
        """Return a figure over the experiments that the query names."""
        return self.figure(self._requested_experiments(request), name, form, request, theme)

    def profiles(self, request: Request) -> HTMLResponse:
        """Show performance profiles over the comparisons that the query names."""
        try:
            experiments = self._requested_experiments(request)
            report = self._reader.analysis.profile([experiment.id for experiment in experiments])
        except ConflictError as error:
            return refused_page(409, "No performance profile for these experiments", str(error))
        return page(
            "experiments/together.html",
            heading="Performance profiles",
            headline=profile_headline(report),
            experiments=experiments,
            profile=report,
            styles={  # of each candidate that of the first experiment that has it
                name: style
                for experiment in reversed(experiments)
                for name, style in candidate_styles(experiment).items()
            },
        )

    def figure(
        self,
        experiments: Sequence[ExperimentRecord],
        name: LawFigure,
        form: FileForm,
        request: Request,
        theme: ThemeName,
    ) -> Response:
        """Return a figure of the law over these experiments."""
        try:
            report = self._reader.law(experiments, predict=_targets(request))
        except FitError:
            report = EMPTY
        subject = experiments[0].name if len(experiments) == 1 else pluralize(len(experiments), "experiment")
        entry = next(entry for entry in LAW_FIGURES if entry.name == name)
        drawn = entry.draw(report, candidate_styles(experiments[0]), theme, ())
        return figure_answer(drawn, form, theme, name=entry.name, title=f"{entry.title} · {subject}")

    def _law(self, experiments: Sequence[ExperimentRecord], sizes: Sequence[str], query: str) -> dict[str, Any]:
        """Return the parts of a law's page, with the beginning of its figures' `query`; if nothing can be fitted, the
        reason instead of a report."""
        report, refusal = None, ""
        try:
            report = self._reader.law(experiments, predict=sizes)
        except FitError as error:
            refusal = str(error)
        return {
            "report": report,
            "refusal": refusal[:1].upper() + refusal[1:],
            "styles": candidate_styles(experiments[0]),
            "query": query + urlencode([("predict", size) for size in sizes]),
        }

    def _requested_experiments(self, request: Request) -> list[ExperimentRecord]:
        """Return the experiments that `experiments=a,b` names. Raises `NotFoundError` if there are none or one does
        not exist, and `ConflictError` if the bench did not train one."""
        parts = ",".join(request.query_params.getlist("experiments")).split(",")
        ids = list(filter(None, dict.fromkeys(map(str.strip, parts))))[:MOST_EXPERIMENTS]
        if not ids:
            raise NotFoundError("no experiment is named; select some in the list of experiments")
        experiments: list[ExperimentRecord] = []
        for experiment in map(self._experiments.find, ids):
            if isinstance(experiment, ExternalExperiment):
                raise ConflictError(f"{experiment.name} has logged or imported runs, which count in none; deselect it.")
            experiments.append(experiment)
        return experiments


def _targets(request: Request) -> tuple[str, ...]:
    """Return the sizes to predict; none are the next larger models of the catalog."""
    return tuple(filter(_is_target, request.query_params.getlist("predict")))[:MOST_TARGETS]


EMPTY = FitReport(experiments=(), form="n", formula="", baseline="", draws=0, fits=(), notes=())
"""The sentence of a figure if nothing can be fitted."""


def _address(path: str, experiments: Sequence[ExperimentRecord]) -> str:
    """Return a path with the experiments in its query."""
    return f"{path}?{urlencode({'experiments': ','.join(experiment.id for experiment in experiments)}, safe=',')}"


def _is_target(text: str) -> bool:
    try:
        is_target(text)
    except ValueError:
        return False
    return True
