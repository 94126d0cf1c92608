"""`residual-stationarity`: assumption 1, whether AdaPM's residuals keep their distribution over 20 steps."""

import math
from collections.abc import Sequence
from fnmatch import fnmatchcase
from statistics import fmean

from orchestrator.studies import probed
from orchestrator.studies.evidence import Evidence
from orchestrator.studies.findings import Answer, Judgement, all_hold, figure_sentence, incomplete, lies_above, missing
from orchestrator.studies.study import Numbers, Study
from worker.records.result import Observation

WINDOW_STEPS = 20
"""The paper's."""
AGREE = 0.1
"""Quantiles that drift by less than a tenth within the window are said to agree; the paper shows a picture."""
QUANTILES = ("quantile_25", "quantile_50", "quantile_75", "quantile_95")
ROLES = ("query", "key", "MLP")
"""Where AdaPM keeps low-rank momentum."""


def observe(observations: Sequence[Observation]) -> Numbers:
    """Role → the largest drift of a quantile of |r| from the first to the second half of the first window."""
    seen = [each for each in observations if each.probe == "residual"][:WINDOW_STEPS]
    if len(seen) < WINDOW_STEPS:
        return {}
    half = WINDOW_STEPS // 2
    found = {}
    for role in ROLES:
        logs = [[_log(each, role, quantile) for quantile in QUANTILES] for each in seen]
        drifts = [
            abs(fmean(row[place] for row in logs[half:]) - fmean(row[place] for row in logs[:half]))
            for place in range(len(QUANTILES))
        ]
        found[role] = max(drifts)
    return found


def _log(observation: Observation, role: str, quantile: str) -> float:
    """The mean logarithm of a quantile over the blocks of a role."""
    pattern = probed.ROLES[role]
    values = [v[quantile] for name, v in observation.blocks.items() if fnmatchcase(name, pattern)]
    return fmean(math.log(max(value, 1e-30)) for value in values) if values else 0.0


def judge(evidence: Evidence) -> Judgement:
    """In every role no quantile drifts by more than a tenth."""
    if lacking := incomplete(evidence, [probed.PART]):
        return lacking
    found = probed.mean_over_runs(evidence)
    if any(role not in found for role in ROLES):
        return missing("no run that ended well was observed over a whole window")
    answers = [_OPPOSITE[lies_above(found[role], AGREE)] for role in ROLES]
    told = "; ".join(figure_sentence(found[role], 3) for role in ROLES)
    return Judgement(
        measured=all_hold(answers),
        sentence=f"Largest relative drift of a quantile of |r| within {WINDOW_STEPS} steps: {told}.",
        measures=tuple(found[role] for role in ROLES),
        notes=("The quantiles are of the residuals' sizes: the mean, of which the theorem speaks, is not tested.",),
    )


_OPPOSITE = {
    Answer.HOLDS: Answer.FAILS,
    Answer.FAILS: Answer.HOLDS,
    Answer.UNDECIDED: Answer.UNDECIDED,
}
"""A drift above the limit is what contradicts the claim."""

STUDY = Study(
    name="residual-stationarity",
    title="Stationary residuals: assumption 1",
    question="Do the residuals of the low-rank momentum keep their distribution over short horizons?",
    claim="The distributions of r_t agree over windows of 20 steps.",
    source="assumption 1, figure 4b",
    plans=probed.plans("adapm", ("residual",), window_steps=WINDOW_STEPS),
    judge=judge,
    observe=observe,
    axis="relative drift of a quantile",
    order=110,
)
