"""Fits for pages: fitted once for each state of their experiments, not once a viewer or a refresh.

A law changes only when a run ends, and then a fit of a thousand draws takes about a second.
"""

import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock

from dashboards.palette import Style, styles
from orchestrator.analysis.laws.records import FitReport, FormName, Prediction
from orchestrator.analysis.laws.targets import larger_presets
from orchestrator.records import ExperimentRecord
from orchestrator.services.analysis import Analysis

MOST_KEPT = 16
COUNTING_SECONDS = 10.0
"""A fit whose memory is still being counted is asked for again after so long."""

LawKey = tuple[tuple[str, ...], FormName | None, tuple[str, ...]]


@dataclass(frozen=True, kw_only=True)
class CachedFit:
    """A report, what it was made from, and until when it holds."""

    stamp: object
    report: FitReport
    until: float


class FitReader:
    """Reads fits for pages and keeps the newest ones. Thread-safe."""

    def __init__(self, analysis: Analysis) -> None:
        self.analysis = analysis
        self._kept: OrderedDict[LawKey, CachedFit] = OrderedDict()
        self._lock = Lock()

    def fit(
        self,
        experiments: Sequence[ExperimentRecord],
        form: FormName | None,
        predict: Sequence[str],
        *,
        wait: bool = False,
    ) -> FitReport:
        """The laws over these experiments; raises `FitError` where there can be none."""
        key = tuple(each.id for each in experiments), form, tuple(predict)
        stamp = tuple((each.counts.total, each.counts.ended()) for each in experiments)
        with self._lock:
            known = self._kept.get(key)
        if known is not None and known.stamp == stamp and time.monotonic() < known.until:
            return known.report
        report = self.analysis.fit([each.id for each in experiments], form=form, predict=predict, wait=wait)
        counting = any(each.model and not (each.memory and each.memory.exact) for each in _predictions(report))
        until = time.monotonic() + COUNTING_SECONDS if counting else float("inf")
        with self._lock:
            self._kept[key] = CachedFit(stamp=stamp, report=report, until=until)
            self._kept.move_to_end(key)
            while len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
        return report


def candidate_styles(experiments: Sequence[ExperimentRecord]) -> dict[str, Style]:
    """The styles of the first experiment's candidates, by name."""
    return styles((one.name(), one.optimizer) for one in experiments[0].spec.candidates)


def default_targets(experiments: Sequence[ExperimentRecord]) -> tuple[str, ...]:
    """The next larger models of the catalog: what a page predicts unless it is asked for something else."""
    models = {model for each in experiments for model in each.spec.models()}
    return larger_presets(models, experiments[0].spec.workload.data.tokenizer)


def _predictions(report: FitReport) -> list[Prediction]:
    return [each for fit in report.fits for each in fit.predictions]
