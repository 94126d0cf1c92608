"""`/external`: runs that loops outside of the bench told of, and the judgement on an experiment of them.

/external                                  the experiments
/external/{id}                             one: verdicts, curves, runs
/external/{id}/figures/curves.{form}       one metric of its runs
/external/{id}/figures/panel.{form}        a figure that a reader added
/external/{id}/labels                      adds a label, or takes one away
/external/{id}/delete                      asks, then removes it for good
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from pydantic import ValidationError

from dashboards.data.compared import group_fields
from dashboards.data.panels import Panel, edited_address, page_panels
from dashboards.data.series import AXIS_TITLES
from dashboards.figures.curves import MOST_EXTERNAL_LINES, external_styles
from dashboards.figures.panels import external_lines
from dashboards.figures.registry import EXTERNAL_CURVES, EXTERNAL_PANEL
from dashboards.files.figures import FileForm, figure_answer, unchanged_answer
from dashboards.pages.submit import Pairs, read_form_pairs
from dashboards.palette import ThemeName
from dashboards.render import or_missing_page, page, refused_page
from dashboards.view_state import panel_words
from orchestrator.annotations import LabelChange
from orchestrator.errors import ConflictError
from orchestrator.external_runs import ExternalExperiment, ExternalJudgement, ExternalRun, JudgementChoice
from orchestrator.services.external_runs import ExternalRuns

EXPERIMENTS_SHOWN = 200
RUNS_SHOWN = 500
"""Rows of the table of runs; the file has them all."""
LONGEST_CHOICE = 128


def external_pages(external_runs: ExternalRuns) -> APIRouter:
    """All of them."""
    router = APIRouter(include_in_schema=False)
    handlers = ExternalPages(external_runs)
    router.get("/external")(handlers.experiments)
    for path, handler in (
        ("", handlers.experiment),
        ("/figures/curves.{form}", handlers.curves),
        ("/figures/panel.{form}", handlers.panel),
        ("/delete", handlers.ask_to_delete),
    ):
        router.get(f"/external/{{external_id}}{path}")(or_missing_page(handler))
    router.post("/external/{external_id}/labels")(or_missing_page(handlers.change_labels))
    router.post("/external/{external_id}/delete")(or_missing_page(handlers.delete))
    return router


class ExternalPages:
    """What answers."""

    def __init__(self, external_runs: ExternalRuns) -> None:
        self._external_runs = external_runs

    def experiments(self) -> HTMLResponse:
        """The list."""
        found = self._external_runs.experiments(limit=EXPERIMENTS_SHOWN)
        return page("external/experiments.html", experiments=found, limit=EXPERIMENTS_SHOWN)

    def experiment(self, external_id: str, request: Request) -> Response:
        """One experiment, with its judgement or the reason why there is none."""
        view, path = ExternalView.parse(request.query_params.multi_items()), f"/external/{external_id}"
        choice = view.choice
        found, runs = self._external_runs.experiment(external_id), self._external_runs.runs(external_id)
        metrics = sorted({name for run in runs for name in run.metrics})
        titles = {name: name for name in metrics}
        if (edited := edited_address(path, view, request.query_params, titles)) is not None:
            return RedirectResponse(edited, status_code=303)
        judgement, reason = self._judge(found, choice)
        metric = judgement.metric if judgement else choice.metric or next(iter(metrics), None)
        return page(
            "external/experiment.html",
            experiment=found,
            damage=[text for text in (found.damaged, *(run.damaged for run in runs)) if text],
            runs=runs[:RUNS_SHOWN],
            runs_shown=RUNS_SHOWN,
            judgement=judgement,
            reason=reason,
            chosen=choice,
            panels=page_panels(
                path,
                view,
                f"{path}/figures/panel.json",
                group_fields(runs),
                Panel(metric=metric or "", by="candidate"),
                metrics=titles,
                axes={"steps": AXIS_TITLES["steps"]},
            ),
            metric=metric,
            metrics=metrics,
            workloads=sorted({run.workload or "" for run in runs}),
            looks=external_styles(found.candidates),
            lines=len(_drawn_runs(runs, judgement, choice.workload)),
            most_lines=MOST_EXTERNAL_LINES,
        )

    def curves(self, external_id: str, form: FileForm, request: Request, theme: ThemeName = "light") -> Response:
        """The runs by one metric: those at judged rates, where there is a verdict, else all."""
        choice = ExternalView.parse(request.query_params.multi_items()).choice
        found, tag = self._tagged_experiment(external_id)
        if (unchanged := unchanged_answer(tag, request)) is not None:
            return unchanged
        judgement, _ = self._judge(found, choice)
        runs = _drawn_runs(self._external_runs.runs(found.id), judgement, choice.workload)
        metric = choice.metric or (judgement.metric if judgement else "")
        panel, styles = Panel(metric=metric, smooth=0), external_styles(found.candidates)
        lines = external_lines(runs, self._external_runs.series, panel, styles)
        drawn = EXTERNAL_CURVES.draw(lines.values(), panel, theme)
        title = EXTERNAL_CURVES.title.format(metric=metric)
        return figure_answer(drawn, form, theme, name=f"external-{found.id}", title=title, tag=tag)

    def panel(self, external_id: str, form: FileForm, request: Request, theme: ThemeName = "light") -> Response:
        """A figure that a reader added, of all of the runs."""
        found, tag = self._tagged_experiment(external_id)
        if (unchanged := unchanged_answer(tag, request)) is not None:
            return unchanged
        runs = self._external_runs.runs(found.id)
        metrics = sorted({name for run in runs for name in run.metrics})
        panel = Panel.parse(request.query_params.get("panel", ""), metrics)
        styles = external_styles(found.candidates)
        lines = external_lines(runs, self._external_runs.series, replace(panel, x="steps"), styles)
        drawn = EXTERNAL_PANEL.draw(lines.values(), replace(panel, x="steps"), theme)
        return figure_answer(drawn, form, theme, name="panel", title=EXTERNAL_PANEL.title, tag=tag)

    def change_labels(self, external_id: str, pairs: Annotated[Pairs, Depends(read_form_pairs)]) -> Response:
        """Add what is written, take away what is named."""
        sent = dict(pairs)
        try:
            names = {
                each: [part for part in sent.get(each, "").split(",") if part.strip()] for each in ("add", "remove")
            }
            self._external_runs.change_labels(external_id, LabelChange.model_validate(names))
        except ValidationError as error:
            why = str(error.errors()[0]["msg"]).removeprefix("Value error, ")
            return refused_page(422, "Not labelled", f"A label {why}.")
        except ConflictError as error:
            return refused_page(409, "Not labelled", str(error))
        return RedirectResponse(f"/external/{external_id}", status_code=303)

    def ask_to_delete(self, external_id: str) -> HTMLResponse:
        """What a deletion would mean."""
        return page("external/delete.html", experiment=self._external_runs.experiment(external_id))

    def delete(self, external_id: str) -> Response:
        """Delete it. What another one has deleted meanwhile is gone, too."""
        self._external_runs.delete_experiment(external_id)
        return RedirectResponse("/external", status_code=303)

    def _tagged_experiment(self, external_id: str) -> tuple[ExternalExperiment, str]:
        """The experiment, and what changes whenever its figures do."""
        found = self._external_runs.experiment(external_id)
        return found, f'"{found.id}-{found.updated_at}-{found.runs}"'

    def _judge(
        self, experiment: ExternalExperiment, choice: JudgementChoice
    ) -> tuple[ExternalJudgement | None, str | None]:
        try:
            return self._external_runs.judge(experiment.id, choice), None
        except ConflictError as error:
            return None, str(error)


@dataclass(frozen=True, kw_only=True)
class ExternalView:
    """What the page of an experiment shows, kept in its URL."""

    choice: JudgementChoice
    panels: tuple[str, ...] = ()
    """Further figures, as `dashboards/data/panels.py` reads them."""

    @classmethod
    def parse(cls, query: Iterable[tuple[str, str]]) -> "ExternalView":
        """Read the query of a URL; the form sends empty texts for what nobody chose."""
        pairs = list(query)
        given = {name: text.replace("\x00", "")[:LONGEST_CHOICE] for name, text in pairs}
        choice = JudgementChoice(
            metric=given.get("metric") or None, baseline=given.get("baseline") or None, workload=given.get("workload")
        )
        return cls(choice=choice, panels=panel_words(pairs))

    def query(self) -> str:
        """The query of a URL with this state, `?` included."""
        chosen = (
            ("metric", self.choice.metric),
            ("baseline", self.choice.baseline),
            ("workload", self.choice.workload),
        )
        pairs = [(name, value) for name, value in chosen if value is not None]
        return "?" + urlencode(pairs + [("panel", each) for each in self.panels], safe="*")

    def replace(self, *, panels: tuple[str, ...]) -> "ExternalView":
        """The same view with other panels."""
        return replace(self, panels=panels)


def _drawn_runs(
    runs: Sequence[ExternalRun], judgement: ExternalJudgement | None, workload: str | None
) -> list[ExternalRun]:
    """As many as can be told apart."""
    if judgement is not None:
        workload = judgement.workload or ""
    rates = {row.candidate: row.lr for row in judgement.rows if row.lr is not None} if judgement else {}
    fitting = [
        run
        for run in runs
        if (workload is None or (run.workload or "") == workload) and run.lr == rates.get(run.candidate, run.lr)
    ]
    return fitting[:MOST_EXTERNAL_LINES]
