"""`momentum-theory`: theorem 1's exponents, fitted to the excess risk of SGD and of accelerated SGD over T."""

from collections.abc import Mapping

import numpy as np

from orchestrator.analysis.statistics import mean_interval
from orchestrator.studies.result import Figure, StudyResult, interval_figure
from orchestrator.studies.study import Study, StudyFigures

METRIC = "exponent of the excess risk over T"
REGIMES = ("a > b", "a <= b")
CANDIDATES = ("SGD", "ASGD")


def measure(study: Study, result: StudyResult) -> list[Figure]:
    """Return the exponent of each candidate in each regime, over the seeds that have every T; without a value where a
    run was lost, because those that are left say nothing of all."""
    figures = []
    for regime in REGIMES:
        parts = [part for part in result.parts if part.name.startswith(f"{regime},")]
        for candidate in CANDIDATES:
            runs = [run for part in parts for run in part.runs_of(candidate)]
            risks: dict[int, dict[int, float]] = {}
            for run in runs:
                if run.ended_well() and run.loss and run.tokens:
                    risks.setdefault(run.seed, {})[run.tokens] = run.loss
            is_whole = len(parts) > 1 and all(run.ended_well() for run in runs)
            slopes = [slope(by_horizon) for by_horizon in risks.values()] if is_whole else []
            note = "" if slopes else "a run diverged"
            figures.append(interval_figure(METRIC, f"{candidate}, {regime}", mean_interval(slopes), note=note))
    return figures


def slope(risks: Mapping[int, float]) -> float:
    """Return the exponent of risk over T: the least-squares slope of log risk on log T."""
    logs = np.log(np.array(sorted(risks.items())))
    return float(np.polyfit(logs[:, 0], logs[:, 1], 1)[0])


FIGURES = StudyFigures(measure=measure)
