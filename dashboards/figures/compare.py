"""The figures and the table of the page that compares any runs of any experiments. Pure.

Runs that another loop or tool logged stand among them: each is marked, and no loss is the lowest of both origins, for
nobody checked what the others' were taken on.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlencode

from dashboards.data.any_run import AnyRun
from dashboards.data.panels import Panel
from dashboards.data.series import external_metric
from dashboards.palette import Style, numbered_style, styles
from dashboards.text import formats
from dashboards.view_state import panel_words
from orchestrator.external_runs import ExternalRun
from orchestrator.records import RunRecord
from orchestrator.specs.differences import SpecDifferences

MOST_RUNS = 12
"""The most lines that a reader can tell apart."""
FIRST_PANELS = (Panel(metric="val_loss", smooth=0).word(), Panel(metric="train_loss").word())
"""The panels by default."""
MetricReader = Callable[[RunRecord], float | None]


@dataclass(frozen=True, kw_only=True)
class CompareView:
    """The view of the page, kept in its URL."""

    runs: tuple[str, ...] = ()
    panels: tuple[str, ...] = FIRST_PANELS
    """Figures, as `dashboards/data/panels.py` reads them."""
    left_out: int = 0
    """Runs that were asked for beyond the most that are shown; in no address."""

    @classmethod
    def parse(cls, query: Iterable[tuple[str, str]]) -> "CompareView":
        """Read the query of a URL: `runs=a,b` or `runs=a&runs=b`."""
        pairs = list(query)
        sent = (run_id for name, value in pairs if name == "runs" for run_id in value.replace(",", " ").split())
        ids = tuple(dict.fromkeys(sent))
        return cls(runs=ids[:MOST_RUNS], left_out=len(ids[MOST_RUNS:]), panels=panel_words(pairs) or FIRST_PANELS)

    def query(self) -> str:
        """Return the query of a URL with this state, `?` included."""
        pairs = [("runs", ",".join(self.runs))] if self.runs else []
        pairs += [("panel", panel) for panel in self.panels] if self.panels != FIRST_PANELS else []
        return "?" + urlencode(pairs, safe=",*")

    def remove_run(self, run_id: str) -> "CompareView":
        """Return the same view with one run less."""
        return replace(self, runs=tuple(other_id for other_id in self.runs if other_id != run_id))


@dataclass(frozen=True, kw_only=True)
class ComparedValues:
    """A line of a table: a name and each run's value."""

    name: str
    values: tuple[str, ...]
    best: int | None = None
    """The best value, if one can be best."""


def run_styles(runs: Sequence[AnyRun]) -> dict[str, Style]:
    """Return the styles by run key: the optimizer's own colour, relatives dashed; if a candidate has several runs, a
    hue for each run instead."""
    if len({(run.candidate, run.optimizer) for run in runs}) == len(runs):
        return styles((run.key, run.optimizer) for run in runs)
    return {run.key: numbered_style(index) for index, run in enumerate(runs)}


def difference_rows(differences: SpecDifferences) -> tuple[ComparedValues, ...]:
    """Return the fields that differ, with the value of every run."""
    rows = differences.different.items()
    return tuple(ComparedValues(name=name, values=tuple(map(formats.json_value, values))) for name, values in rows)


def result_rows(runs: Sequence[AnyRun]) -> tuple[ComparedValues, ...]:
    """Return the results of the runs; in bold the lowest value, or the highest if more is better."""
    states = ComparedValues(name="state", values=tuple(run.state() for run in runs))
    results = (run.measured and run.measured.result for run in runs)
    devices = (result.environment.device_name if result else formats.UNKNOWN for result in results)
    measured = (_measured_row(name, runs, read, shown) for name, read, shown in MEASURED)
    return (states, *measured, ComparedValues(name="device", values=tuple(devices)))


def _measured_row(name: str, runs: Sequence[AnyRun], read: MetricReader, shown: Callable[..., str]) -> ComparedValues:
    values = [read(run.measured) if run.measured else _last_logged(run.external, name) for run in runs]
    comparable = [value for value in values if value is not None]
    if name in LOSSES and not _same_measure(runs):
        comparable = []
    best = (max if name in MORE_IS_BETTER else min)(comparable) if len(set(comparable)) > 1 else None
    index = values.index(best) if best is not None else None
    return ComparedValues(name=name, values=tuple(shown(value) for value in values), best=index)


def _result(name: str, fallback: str | None = None) -> MetricReader:
    """Return a figure of the result, by its field; before there is one, a field of the run."""

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
LOGGED_METRICS = {"validation loss": "val_loss", "training loss": "train_loss", "tokens/s": "tokens_per_second"}
"""The results that an external run may have logged, and the metric's name."""
MORE_IS_BETTER = frozenset({"tokens/s"})
LOSSES = frozenset({"validation loss", "training loss"})


def _last_logged(run: ExternalRun | None, name: str) -> float | None:
    metric = external_metric(run.metrics, LOGGED_METRICS[name]) if run and name in LOGGED_METRICS else None
    return run.metrics[metric].last if run and metric else None


def _same_measure(runs: Sequence[AnyRun]) -> bool:
    """Return whether their losses can be compared: of the same task, on the same tokens. External
    runs are taken as they say."""
    works = [run.measured.spec.workload for run in runs if run.measured and run.measured.spec]
    return (
        len(works) == len(runs)
        and len({(work.task.kind, work.data.dataset, work.data.tokenizer) for work in works}) == 1
    )
