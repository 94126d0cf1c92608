"""Any runs of any experiments beside each other: their curves in one figure, what they came to in one table. Pure.

External runs stand among them under their own names: each is marked in every figure and table, and no loss is the
lowest of both origins, for nobody checked what the others' were taken on.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args
from urllib.parse import urlencode

import numpy as np
from pydantic import JsonValue

from dashboards.data.compared import ComparedRun
from dashboards.data.series import AXIS_TITLES, Series, XColumn, external_metric
from dashboards.figures.base import HEADROOM, Figure, figure, layout_of, line, plain
from dashboards.palette import Style, ThemeName, numbered_style, styles
from dashboards.text import formats
from dashboards.text.formats import LOSS_IN_NATS
from dashboards.view_state import panel_words
from orchestrator.external_runs import ExternalRun
from orchestrator.records import RunRecord
from orchestrator.specs.differences import DifferingField, SpecDifferences

MOST_RUNS = 12
"""More lines than this nobody tells apart."""
Metric = Literal["loss", "grad_norm", "lr", "step_seconds"]
METRICS: dict[Metric, str] = {
    "loss": "loss",
    "grad_norm": "gradient norm",
    "lr": "learning rate",
    "step_seconds": "step time, s",
}
MetricReader = Callable[[RunRecord], float | None]


@dataclass(frozen=True, kw_only=True)
class CompareView:
    """What the page shows, kept in its URL."""

    runs: tuple[str, ...] = ()
    x: XColumn = "steps"
    metric: Metric = "loss"
    log: bool = False
    panels: tuple[str, ...] = ()
    """Further figures, as `dashboards/data/panels.py` reads them."""
    left_out: int = 0
    """Runs that were asked for beyond the most that are shown; in no address."""

    @classmethod
    def parse(cls, query: Iterable[tuple[str, str]]) -> "CompareView":
        """Read the query of a URL: `runs=a,b` or `runs=a&runs=b`."""
        pairs = list(query)
        given = dict(pairs)
        sent = (each for name, value in pairs if name == "runs" for each in value.replace(",", " ").split())
        ids = tuple(dict.fromkeys(sent))
        return cls(
            runs=ids[:MOST_RUNS],
            left_out=len(ids[MOST_RUNS:]),
            x=next((one for one in get_args(XColumn) if one == given.get("x")), "steps"),
            metric=next((one for one in METRICS if one == given.get("metric")), "loss"),
            log=given.get("log") == "1",
            panels=panel_words(pairs),
        )

    def query(self) -> str:
        """The query of a URL with this state, `?` included."""
        pairs = [("runs", ",".join(self.runs))] if self.runs else []
        pairs += [("x", self.x)] if self.x != "steps" else []
        pairs += [("metric", self.metric)] if self.metric != "loss" else []
        pairs += [("log", "1")] if self.log else []
        return "?" + urlencode(pairs + [("panel", each) for each in self.panels], safe=",*")

    def replace(self, **changes: Any) -> "CompareView":
        """The same view with other values."""
        return replace(self, **changes)

    def remove_run(self, run_id: str) -> "CompareView":
        """The same view with one run less."""
        return replace(self, runs=tuple(each for each in self.runs if each != run_id))


@dataclass(frozen=True, kw_only=True)
class ComparedValues:
    """One line of a table: a name and what each run has there."""

    name: str
    values: tuple[str, ...]
    best: int | None = None
    """Which value is the best one, where one can be."""


def run_styles(runs: Sequence[ComparedRun]) -> dict[str, Style]:
    """By the key of a run: its optimizer's own colour, relatives dashed; where a candidate has several runs, a hue for
    each run instead."""
    if len({run.candidate for run in runs}) == len(runs):
        return styles((run.key, run.candidate[1]) for run in runs)
    return {run.key: numbered_style(index) for index, run in enumerate(runs)}


def metric_title(runs: Sequence[ComparedRun], metric: Metric) -> str:
    """What is drawn; a loss as the task of the runs calls it, where it is the same in all of them."""
    specs = [run.measured.spec for run in runs if run.measured and run.measured.spec]
    tasks = {(spec.workload.task.loss_name, spec.workload.task.loss_unit) for spec in specs}
    if metric != "loss" or len(tasks) != 1 or any(run.external for run in runs):
        return METRICS[metric]
    ((name, unit),) = tasks
    return LOSS_IN_NATS if unit else name


def overlay(runs: Sequence[ComparedRun], series: Sequence[Series], view: CompareView, theme: ThemeName) -> Figure:
    """One metric of every run: a loss as its smoothed training loss and the marks of its validation, which are joined
    where a loop told no training loss. An external run that did not tell what the axis counts is left out."""
    chosen = run_styles(runs)
    data: list[dict[str, Any]] = []
    for run, one in zip(runs, series, strict=True):
        look, x, title = chosen[run.key], getattr(one, view.x), plain(run.title())
        if run.external and not np.isfinite(x).any():
            continue
        dashed = {"width": 1.5, "color": look.colour(theme), "dash": look.dash}
        y = one.smoothed if view.metric == "loss" else getattr(one, view.metric)
        drawn = np.isfinite(x) & np.isfinite(y) if run.external else slice(None)  # a loop logs its metrics one by one
        has_line = run.measured is not None or np.isfinite(y).any()
        if has_line:
            data.append(line(x[drawn], y[drawn], title, look.colour(theme)) | {"line": dashed})
        if view.metric == "loss":
            known = np.isfinite(one.val_loss) & np.isfinite(x) & (one.steps > 0)
            told = (
                {"mode": "markers", "name": "validation", "hoverinfo": "skip"}
                if has_line
                else {"mode": "lines+markers", "name": title, "line": dashed}
            )
            marks = line(x[known], one.val_loss[known], title, look.colour(theme)) | told
            data.append(marks | {"marker": {"size": 7, "symbol": look.symbol, "color": look.colour(theme)}})
    layout = layout_of(theme, x_title=AXIS_TITLES[view.x], y_title=metric_title(runs, view.metric))
    layout["hovermode"] = "x unified" if len(runs) <= 6 else "closest"
    layout["uirevision"] = view.query()
    if view.log and not (view.metric == "loss" and _has_negative_loss(series)):
        layout["yaxis"] |= {"type": "log", "nticks": 6}
    elif view.metric == "loss" and (bounds := _loss_bounds(series)):
        layout["yaxis"]["range"] = list(bounds)
    shown = any(each["x"] for each in data)
    return figure(data if shown else [], layout, theme, empty="None of these runs has reported a step yet.")


def _has_negative_loss(series: Sequence[Series]) -> bool:
    """Whether a loss is negative, as a reward's is: it has no logarithm."""
    return any(bool((column < 0).any()) for one in series for column in (one.smoothed, one.val_loss))


def _loss_bounds(series: Sequence[Series]) -> tuple[float, float] | None:
    """From the lowest loss to a little above the highest that a run begins with: one that diverges leaves the figure
    instead of flattening the others. None where none of them does, or where losses are below zero: training losses of a
    reward rise and fall."""
    if _has_negative_loss(series):
        return None
    drawn = (one.smoothed if np.isfinite(one.smoothed).any() else one.val_loss for one in series)
    known = [each[np.isfinite(each)] for each in drawn if np.isfinite(each).any()]
    if not known:
        return None
    first, low = max(float(each[0]) for each in known), min(float(each.min()) for each in known)
    if max(float(each.max()) for each in known) <= HEADROOM * first:
        return None
    return low - 0.05 * (first - low), HEADROOM * first


def undrawn_runs(runs: Iterable[ComparedRun], across: XColumn) -> tuple[ComparedRun, ...]:
    """The external runs that did not tell what an axis counts: nothing can be drawn over it.
    Device-hours nobody can tell."""
    told = {"tokens": "tokens", "seconds": "step_seconds", "hours": None}
    if across == "steps":
        return ()
    return tuple(run for run in runs if run.external and told[across] not in run.external.metrics)


@dataclass(frozen=True, kw_only=True)
class Differences:
    """The fields of several runs as rows of tables."""

    different: tuple[ComparedValues, ...]
    """In which they differ."""
    one_sided: tuple[ComparedValues, ...]
    """Which only the measured runs have, or only the external ones, and all of these alike: of two origins each has
    dozens that the other does not know."""
    equal: tuple[tuple[str, JsonValue], ...]


def difference_rows(found: SpecDifferences, external: Iterable[str] = ()) -> Differences:
    """What differs, with the value of every run; `external` are those that are."""
    told = frozenset(external)
    origins = [{key for key in found.readable_runs() if (key in told) == is_told} for is_told in (False, True)]

    def is_one_sided(one: DifferingField) -> bool:
        values = list(one.values.values())
        return all(origins) and set(one.values) in origins and values == values[:1] * len(values)

    rows = [
        (ComparedValues(name=one.field, values=tuple(map(formats.json_value, one.values_of(found.runs)))), one)
        for one in found.different
    ]
    return Differences(
        different=tuple(row for row, one in rows if not is_one_sided(one)),
        one_sided=tuple(row for row, one in rows if is_one_sided(one)),
        equal=tuple((one.field, one.value) for one in found.equal),
    )


def result_rows(runs: Sequence[ComparedRun]) -> tuple[ComparedValues, ...]:
    """What the runs came to; in bold what is lowest, or highest where more is better."""
    states = ComparedValues(name="state", values=tuple(run.state() for run in runs))
    results = (run.measured and run.measured.result for run in runs)
    devices = (result.environment.device_name if result else formats.UNKNOWN for result in results)
    measured = (_measured_row(name, runs, read, shown) for name, read, shown in MEASURED)
    return (states, *measured, ComparedValues(name="device", values=tuple(devices)))


def _measured_row(
    name: str, runs: Sequence[ComparedRun], read: MetricReader, shown: Callable[..., str]
) -> ComparedValues:
    values = [read(run.measured) if run.measured else _last_told(run.external, name) for run in runs]
    known = [value for value in values if value is not None]
    if name in LOSSES and not _same_measure(runs):
        known = []
    best = (max if name in MORE_IS_BETTER else min)(known) if len(set(known)) > 1 else None
    index = values.index(best) if best is not None else None
    return ComparedValues(name=name, values=tuple(shown(value) for value in values), best=index)


def _result(name: str, fallback: str | None = None) -> MetricReader:
    """A figure of the result, by its field; before there is one, a field of the run."""

    def read(run: RunRecord) -> float | None:
        if run.result is not None:
            return getattr(run.result, name)  # type: ignore[no-any-return]  # all of them are numbers or null
        return getattr(run, fallback) if fallback else None

    return read


MEASURED: tuple[tuple[str, MetricReader, Callable[..., str]], ...] = (
    ("validation loss", _result("final_val_loss", "last_val_loss"), formats.loss),
    ("training loss", _result("final_train_loss", "last_train_loss"), formats.loss),
    ("optimizer state", _result("optimizer_state_bytes"), formats.size),
    ("peak memory (tensors)", lambda run: run.result.peak_tensor_bytes() if run.result else None, formats.size),
    (
        "host RSS of the process",
        lambda run: run.result.peak_memory.host_rss_bytes if run.result else None,
        formats.size,
    ),
    ("step, median", _result("step_seconds_median"), formats.seconds),
    ("tokens/s", _result("tokens_per_second", "tokens_per_second"), formats.compact),
    ("device time", lambda run: run.device_seconds or None, formats.duration),
)
TOLD = {"validation loss": "val_loss", "training loss": "train_loss", "tokens/s": "tokens_per_second"}
"""What of these an external run may have told, and under which metric."""
MORE_IS_BETTER = frozenset({"tokens/s"})
LOSSES = frozenset({"validation loss", "training loss"})


def _last_told(run: ExternalRun | None, name: str) -> float | None:
    if run is None or name not in TOLD or (metric := external_metric(run.metrics, TOLD[name])) is None:
        return None
    return run.metrics[metric].last


def _same_measure(runs: Sequence[ComparedRun]) -> bool:
    """Whether their losses can be held against each other: of the same task, on the same tokens. Of external runs
    nobody checked it."""
    works = [run.measured.spec.workload for run in runs if run.measured and run.measured.spec]
    return (
        len(works) == len(runs)
        and len({(work.task.kind, work.data.dataset, work.data.tokenizer) for work in works}) == 1
    )
