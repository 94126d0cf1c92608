"""`/runs/{id}`: one run with everything that is known of it: series, probes, result, attempts, events, log."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Query, Response
from fastapi.responses import RedirectResponse

from dashboards.data.reader import Reader
from dashboards.data.series import even_indices
from dashboards.figures.base import Figure
from dashboards.figures.run import METER_TITLES, draw_meters, probe_choices, probe_heatmap, run_series
from dashboards.files.figures import FileForm, figure_answer
from dashboards.pages.curation import or_not_found_page
from dashboards.pages.service import Concern, silence
from dashboards.palette import ThemeName
from dashboards.render import page
from dashboards.text import formats, words
from orchestrator.errors import NotFoundError
from orchestrator.records import AttemptRecord, RunRecord
from orchestrator.services.log_lines import LONGEST_SEARCH, LogLevel, LogLine
from orchestrator.services.monitor import Monitor
from worker.records.result import Observation, TextSamples
from worker.words import pluralize

LOG_BYTES = 12_000
"""The end of a log, or of its lines that are searched, that the page shows; the whole of it is one link away."""
Chosen = Annotated[str | None, Query(max_length=64)]
Text = Annotated[str, Query(max_length=10 * LONGEST_SEARCH)]


MOST_SAMPLED_STEPS = 100
"""Evaluations that the page offers to choose from, evenly spread."""


@dataclass(frozen=True, kw_only=True)
class ShownSamples:
    """The texts of a model, as the page shows them."""

    step: int | None
    steps: tuple[int, ...]
    written: tuple[TextSamples, ...]
    """The texts at that step; empty if there are none yet, or they are damaged."""


@dataclass(frozen=True, kw_only=True)
class ShownLog:
    """A log as the page shows it."""

    attempt: int
    search: str
    level: LogLevel
    lines: tuple[LogLine, ...]
    found: int
    """Lines that are asked for; the last ones are shown."""

    def is_filtered(self) -> bool:
        """Return whether less than all lines were asked for."""
        return bool(self.search) or self.level is not LogLevel.INFO


def run_pages(reader: Reader, monitor: Monitor) -> APIRouter:
    """Return the page and its figures."""
    router = APIRouter(include_in_schema=False)
    handlers = RunHandlers(reader, monitor)
    router.get("/runs/{run_id}")(or_not_found_page(reader.experiments, handlers.page))
    router.get("/runs/{run_id}/figures/series.{form}")(handlers.series)
    router.get("/runs/{run_id}/figures/meters.{form}")(handlers.meters)
    router.get("/runs/{run_id}/figures/probe.{form}")(handlers.probe)
    return router


class RunHandlers:
    """The handlers of a run's pages."""

    def __init__(self, reader: Reader, monitor: Monitor) -> None:
        self._reader, self._runs, self._monitor = reader, reader.runs, monitor

    def page(
        self,
        run_id: str,
        probe: Chosen = None,
        quantity: Chosen = None,
        log: Text = "",
        level: Chosen = None,
        attempt: Chosen = None,
        sample: Chosen = None,
    ) -> Response:
        """Return the page; what its probes saw, which texts and which lines of which log are shown, is chosen by the
        query. A logged or imported run is on the page of its experiment."""
        runs, experiments = self._runs, self._reader.experiments
        any_run = self._reader.run(run_id)
        if (run := any_run.measured) is None:
            return RedirectResponse(any_run.page, status_code=303)
        attempts = runs.attempts(run_id)
        observations = runs.observations(run_id) if run.spec is not None and run.spec.workload.probes else ()
        choices = probe_choices(observations)
        chosen = choices.choose(probe, quantity)
        return page(
            "runs/run.html",
            run=run,
            snapshot=self._reader.snapshot(run.experiment_id),
            whole=experiments.get(run.experiment_id),
            events=runs.events(run_id),
            attempts=attempts,
            files=runs.files(run_id),
            samples=self._samples(run, sample),
            log=self._log(run_id, attempts, log[:LONGEST_SEARCH], level, attempt),
            log_levels=LogLevel,
            concerns=(
                *_damage(run, runs.damaged_points(run_id)),
                *silence(one for one in self._monitor.activity(waiting=1).at_work if one.run_id == run_id),
            ),
            dispatch_blocker=self._monitor.dispatch_blocker(),
            queue_position=runs.queue_position(run_id),
            probed=choices,
            chosen=chosen,
            observed=next((record for record in reversed(observations) if chosen and record.probe == chosen[0]), None),
        )

    def series(self, run_id: str, form: FileForm, theme: ThemeName = "light", narrow: bool = False) -> Response:
        """Draw losses, learning rate, gradient norm and step time."""
        run = self._runs.get(run_id)
        snapshot = self._reader.snapshot(run.experiment_id)
        rows = self._reader.own_series(run)
        title = words.loss_title(snapshot.answer)
        drawn = run_series(rows, snapshot.styles[run.candidate], run.steps_total, theme, title=title, narrow=narrow)
        return _answer(drawn, form, theme, run, "series", "Series", snapshot.version)

    def meters(self, run_id: str, form: FileForm, theme: ThemeName = "light", narrow: bool = False) -> Response:
        """Return every other series."""
        run = self._runs.get(run_id)
        snapshot = self._reader.snapshot(run.experiment_id)
        columns = self._runs.series(run_id, tuple(METER_TITLES))
        drawn = draw_meters(columns, snapshot.styles[run.candidate], theme, narrow=narrow)
        return _answer(drawn, form, theme, run, "meters", "Other metrics", snapshot.version)

    def probe(
        self,
        run_id: str,
        form: FileForm,
        theme: ThemeName = "light",
        probe: Chosen = None,
        quantity: Chosen = None,
    ) -> Response:
        """Answer with a probe's observations of every block."""
        run = self._runs.get(run_id)
        observations: tuple[Observation, ...] = self._runs.observations(run_id)
        chosen = probe_choices(observations).choose(probe, quantity) or ("", "")
        version = self._reader.snapshot(run.experiment_id).version
        title = ", ".join(chosen).replace("_", " ").replace("-", " ").capitalize()
        return _answer(probe_heatmap(observations, *chosen, theme), form, theme, run, "probe", title, version)

    def _samples(self, run: RunRecord, step_text: str | None) -> ShownSamples | None:
        """Return the model's texts at the requested step, or the last; None if it was not asked to write."""
        if run.spec is None or run.spec.workload.evaluation.samples is None:
            return None
        steps = self._runs.sampled_steps(run.id)
        step = next((step for step in steps if str(step) == step_text), steps[-1] if steps else None)
        written = () if step is None else self._runs.samples(run.id, after_step=step - 1, most_steps=1)
        offered = {steps[index] for index in even_indices(len(steps), MOST_SAMPLED_STEPS)}
        offered.update(sample.step for sample in written)
        return ShownSamples(step=step, steps=tuple(sorted(offered)), written=written)

    def _log(
        self, run_id: str, attempts: tuple[AttemptRecord, ...], search: str, level: str | None, attempt: str | None
    ) -> ShownLog | None:
        """Return the end of an attempt's log, of the newest one's where none is asked for; None if it left none
        here."""
        if not attempts:
            return None
        number = next((record.attempt for record in attempts if str(record.attempt) == attempt), attempts[-1].attempt)
        lowest_level = next((log_level for log_level in LogLevel if log_level == level), LogLevel.INFO)
        try:
            lines, matches = self._runs.search_log(run_id, number, search, lowest_level, LOG_BYTES)
        except NotFoundError:
            return None
        return ShownLog(attempt=number, search=search, level=lowest_level, lines=lines, found=matches)


def _damage(run: RunRecord, damaged_points: int) -> tuple[Concern, ...]:
    """Return the parts of the stored run that cannot be read."""
    points = f"{pluralize(damaged_points, 'point')} of its series cannot be read: what is stored there is damaged."
    return tuple(Concern(text=text) for text in (run.damaged, points if damaged_points else None) if text)


def _answer(
    figure: Figure, form: FileForm, theme: ThemeName, run: RunRecord, name: str, title: str, version: int
) -> Response:
    """Return a figure of a run, tagged with the version that it shows."""
    title = f"{title} · {run.candidate}, lr {formats.rate(run.lr)}, seed {run.seed}"
    return figure_answer(figure, form, theme, name=f"{run.id}-{name}", title=title, tag=f'"{version}"')
