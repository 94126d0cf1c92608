"""The page of an experiment whose runs another loop logged, or another tool: its judgement, curves and runs.

It stands at the addresses of every experiment, `/experiments/{id}` and below it, where the bench has none of that id.
"""

from collections.abc import Iterable, Sequence
from urllib.parse import urlencode

from fastapi import Request, Response
from fastapi.responses import RedirectResponse

from dashboards.data.any_run import AnyRun, group_fields
from dashboards.data.panels import Panel, edited_address, page_panels
from dashboards.data.reader import Reader
from dashboards.figures.panels import draw_panel, panel_lines
from dashboards.figures.registry import FigureName
from dashboards.files.figures import FileForm, figure_answer, unchanged_answer
from dashboards.palette import ThemeName, external_styles
from dashboards.render import page
from dashboards.text.words import whiskers
from dashboards.view_state import panel_words
from orchestrator.analysis.external_runs import judge
from orchestrator.errors import ConflictError, NotFoundError
from orchestrator.external_runs import ExternalExperiment, ExternalJudgement, ExternalRun, JudgementChoice

RUNS_SHOWN = 500
"""Rows of the table of runs; the file has them all."""
LONGEST_CHOICE = 128


class LoggedPages:
    """The handlers of the pages of an experiment of another loop or tool."""

    def __init__(self, reader: Reader) -> None:
        self._reader, self._external_runs = reader, reader.external_runs

    def page(self, experiment: ExternalExperiment, request: Request) -> Response:
        """Answer with its judgement, or the reason why there is none."""
        pairs, path = request.query_params.multi_items(), f"/experiments/{experiment.id}"
        choice, runs = _choice(request), self._external_runs.runs(experiment.id)
        metrics = _metrics(runs)
        titles = {name: name for name in metrics}
        judgement, reason = _judge(experiment, runs, choice)
        rows = judgement.rows if judgement else ()
        metric = judgement.metric if judgement else choice.metric or next(iter(metrics), None)
        first = (Panel(metric=metric or "", smooth=0, by="candidate").word(),)
        if (edited := edited_address(path, pairs, metrics=titles, first=first)) is not None:
            return RedirectResponse(edited, status_code=303)
        return page(
            "experiments/logged.html",
            experiment=experiment,
            damage=[run.damaged for run in runs if run.damaged],
            runs=runs[:RUNS_SHOWN],
            runs_shown=RUNS_SHOWN,
            judgement=judgement,
            whiskers=whiskers({row.candidate: row.difference for row in rows if row.difference is not None}),
            headline=next((row for row in rows if row.difference is not None), None),
            reason=reason,
            chosen=choice,
            panels=page_panels(
                path,
                pairs,
                f"{path}/figures/panel.json?{urlencode(choice.model_dump(exclude_none=True))}",
                group_fields([AnyRun(record=run) for run in runs]),
                Panel(metric=metric or "", by="candidate"),
                metrics=titles,
                first=first,
            ),
            asked_panels=panel_words(pairs),
            metric=metric,
            metrics=metrics,
            workloads=sorted({run.workload or "" for run in runs}),
            looks=external_styles(experiment.candidates),
        )

    def figure(
        self, experiment: ExternalExperiment, name: FigureName, form: FileForm, request: Request, theme: ThemeName
    ) -> Response:
        """Return a panel of runs at judged rates if there is a verdict, else of all; of all if averaged by rate."""
        if name != "panel":
            raise NotFoundError(f"experiment {experiment.id} was not measured here, and has no figure {name}")
        tag = f'"{experiment.id}-{experiment.updated_at}-{experiment.runs}"'
        if (unchanged := unchanged_answer(tag, request)) is not None:
            return unchanged
        choice = _choice(request)
        runs = self._external_runs.runs(experiment.id)
        metrics, judgement = _metrics(runs), _judge(experiment, runs, choice)[0]
        panel = Panel.parse(request.query_params.get("panel", ""), metrics)
        shown = judgement if panel.by != "lr" else None
        workload = shown.workload or "" if shown else choice.workload
        rates = {row.candidate: row.lr for row in shown.rows if row.lr is not None} if shown else {}
        chosen = [
            AnyRun(record=run)
            for run in runs
            if workload in (None, run.workload or "") and run.lr == rates.get(run.candidate, run.lr)
        ]
        lines = panel_lines(self._reader, chosen, panel, external_styles(experiment.candidates))
        drawn = draw_panel(lines, panel, theme, runs=sum(run.has_metric(panel.metric) for run in chosen))
        title = f"{panel.metric} · {experiment.name}"
        return figure_answer(drawn, form, theme, name=f"{experiment.id}-{name}", title=title, tag=tag)


def _judge(
    experiment: ExternalExperiment, runs: Sequence[ExternalRun], choice: JudgementChoice
) -> tuple[ExternalJudgement | None, str | None]:
    """Return the judgement, or why there is none."""
    try:
        return judge(experiment, runs, choice), None
    except ConflictError as error:
        return None, str(error)


def _metrics(runs: Iterable[ExternalRun]) -> list[str]:
    return sorted({name for run in runs for name in run.metrics})


def _choice(request: Request) -> JudgementChoice:
    """Return the choice of an address; the form sends empty texts for defaults."""
    parameters = {name: text.replace("\x00", "")[:LONGEST_CHOICE] for name, text in request.query_params.items()}
    return JudgementChoice(
        metric=parameters.get("metric") or None,
        baseline=parameters.get("baseline") or None,
        workload=parameters.get("workload"),
    )
