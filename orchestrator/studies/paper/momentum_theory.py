"""`momentum-theory`: theorem 1, the excess risk of SGD and of accelerated SGD over T, fitted in both regimes."""

import math
from collections.abc import Mapping

import numpy as np

from orchestrator.analysis.statistics import mean_interval
from orchestrator.kinds.comparison import Candidate, ComparisonSpec
from orchestrator.studies.evidence import CandidateOutcome, Evidence, StudyScale
from orchestrator.studies.findings import (
    ClaimVerdict,
    Judgement,
    Measure,
    all_hold_together,
    better,
    count_lost,
    difference,
    ended_well,
    figure_sentence,
    incomplete,
    lies_within,
    measure,
    missing,
    together_notes,
    worse,
)
from orchestrator.studies.study import Plan, Study, StudyPart
from worker.spec.run import Budget, Evaluation, Workload
from worker.spec.task import RegressionTask

A = 2.0
REGIMES: Mapping[str, float] = {"a > b": 1.5, "a <= b": 3.0}
"""b of each: the bias dominates in the first, the variance in the second."""
NOISE = 1.0
"""So large that the variance shows within a few thousand steps."""
STEP_SIZE = 0.1
"""The constant step size of the theorem; E|x|² is 1.64, and 0.1 is stable with all momenta here."""
BETA = 0.03
"""Momentum 0.97."""
SGD, ASGD = "SGD", "ASGD"


def exponent(b: float) -> float:
    """The theorem's bound for SGD: T^(1/a − 1) + T^(1/a − b/a), by the slower of the two."""
    return max(1 / A - 1, (1 - b) / A)


def _spec(regime: str, steps: int, seeds: tuple[int, ...], dimension: int) -> ComparisonSpec:
    task = RegressionTask(dimension=dimension, a=A, b=REGIMES[regime], noise=NOISE)
    candidates = (
        Candidate(optimizer="sgd", label=SGD, learning_rates=(STEP_SIZE,)),
        Candidate(
            optimizer="asgd", label=ASGD, learning_rates=(STEP_SIZE,), options={"beta": BETA, "spectral_decay": A}
        ),
    )
    return ComparisonSpec(
        name=f"study momentum-theory, {regime}, T = {steps}",
        workload=Workload(
            task=task,
            model="linear",
            budget=Budget(steps=steps, batch_sequences=1),
            evaluation=Evaluation(every_steps=steps, sequences=1),
        ),
        candidates=candidates,
        seeds=seeds,
        baseline=SGD,
    )


def _plan(horizons: tuple[int, ...], seeds: tuple[int, ...], dimension: int) -> Plan:
    return Plan(
        parts=tuple(
            StudyPart(name=f"{regime}, T = {steps}", spec=_spec(regime, steps, seeds, dimension))
            for regime in REGIMES
            for steps in horizons
        )
    )


def slope(risks: Mapping[int, float]) -> float:
    """The exponent of risk over T: the least-squares slope of log risk on log T."""
    logs = np.log(np.array(sorted(risks.items())))
    return float(np.polyfit(logs[:, 0], logs[:, 1], 1)[0])


def _slopes(evidence: Evidence, regime: str, candidate: str) -> list[float]:
    """One exponent a seed, of the seeds that have every T."""
    by_seed: dict[int, dict[int, float]] = {}
    horizons = 0
    for part in (each for each in evidence.parts if each.name.startswith(f"{regime},")):
        horizons += 1
        for run in ended_well(part.runs_of(candidate)):
            if run.loss and run.tokens:
                by_seed.setdefault(run.seed, {})[run.tokens] = run.loss
    return [slope(risks) for risks in by_seed.values() if len(risks) == horizons and horizons > 1]


def judge(evidence: Evidence) -> Judgement:
    """Exponents no slower than the bounds, but for a logarithm; momentum helps at the largest T where a > b, and not
    where a <= b."""
    if lacking := incomplete(evidence, [part.name for part in STUDY.plans[evidence.scale].parts]):
        return lacking
    slopes = {(regime, name): _slopes(evidence, regime, name) for regime in REGIMES for name in (SGD, ASGD)}
    for (regime, name), each in slopes.items():
        if len(each) < 2:
            return missing(f"fewer than two seeds of {name} ended well at every T where {regime}")

    tolerance = _tolerance(evidence)

    def exponents(tests: int) -> list[Measure]:
        return [
            measure(f"exponent of {name}, {regime}", mean_interval(each, tests), claimed=exponent(REGIMES[regime]))
            for (regime, name), each in slopes.items()
        ]

    def bounds(tests: int) -> list[ClaimVerdict]:
        return [
            _judge_bound(each, tolerance=tolerance, lost=_lost_runs(evidence, *of))
            for each, of in zip(exponents(tests), slopes, strict=True)
        ]

    gains = {regime: _largest_outcome(evidence, regime) for regime in REGIMES}
    helped, hindered = gains["a > b"], gains["a <= b"]
    if helped is None or hindered is None:
        return missing("the largest T has no accelerated SGD")
    gain = difference(helped).model_copy(update={"name": "ASGD − SGD, a > b", "claimed": None})
    harm = difference(hindered).model_copy(update={"name": "ASGD − SGD, a <= b", "claimed": None})
    tests = len(slopes) + len(gains)
    measured = all_hold_together(lambda of: [*bounds(of), better(helped, of), worse(hindered, of)], tests)
    measures = exponents(1)
    slower = [each.name for each, answer in zip(measures, bounds(1), strict=True) if answer is not ClaimVerdict.HOLDS]
    sentence = f"At the largest T: {figure_sentence(gain, 4)}, {figure_sentence(harm, 4)}; " + (
        f"not shown to be within a factor log T of its bound: {', '.join(slower)}."
        if slower
        else "every exponent is within a factor log T of its bound."
    )
    lost = [f"{name}, {regime}" for regime, name in slopes if _lost_runs(evidence, regime, name)]
    notes = (f"Nothing is said of an exponent of which a run diverged: {'; '.join(lost)}.",) if lost else ()
    return Judgement(
        measured=measured,
        sentence=sentence,
        measures=(*measures, gain, harm),
        notes=(_LOGARITHMS.format(tolerance), _CONSTANTS, *notes, *together_notes(tests, measured)),
    )


_LOGARITHMS = (
    "The theorem's bounds are upper ones and hold up to logarithms: a faster exponent contradicts nothing, nor does "
    "one that is slower by no more than {:.2f}, which is what one factor log T adds to it over these T."
)
_CONSTANTS = (
    f"Step size {STEP_SIZE:g} for both, noise {NOISE:g}, beta {BETA:g}; other constants move the T at which a regime "
    "shows."
)


def _largest_outcome(evidence: Evidence, regime: str) -> CandidateOutcome | None:
    parts = [each for each in evidence.parts if each.name.startswith(f"{regime},")]
    largest = max(parts, key=lambda part: max((run.tokens or 0 for run in part.runs), default=0))
    return largest.candidate(ASGD)


def _lost_runs(evidence: Evidence, regime: str, candidate: str) -> int:
    """At any T."""
    return sum(count_lost(part.runs_of(candidate)) for part in evidence.parts if part.name.startswith(f"{regime},"))


def _tolerance(evidence: Evidence) -> float:
    """What one factor log T, which the bounds leave open, adds to an exponent over the T of this scale."""
    horizons = {part.spec.workload.budget.steps for part in STUDY.plans[evidence.scale].parts}
    return slope({steps: math.log(steps) for steps in horizons})


def _judge_bound(found: Measure, *, tolerance: float, lost: int) -> ClaimVerdict:
    """Whether an exponent is no slower than its bound, to within the tolerance: the whole interval, or its mean where
    the interval is open. Undecided where runs were lost: those that are left say nothing of all."""
    if found.value is None or found.claimed is None:
        return ClaimVerdict.MISSING
    if lost:
        return ClaimVerdict.UNDECIDED
    low, high = (found.value if edge is None else edge for edge in (found.low, found.high))
    return lies_within((low, high), highest=found.claimed + tolerance)


STUDY = Study(
    name="momentum-theory",
    title="Where momentum helps: theorem 1",
    question="Does momentum lower the excess risk where a > b, and only there?",
    claim="The excess risk of SGD is at most of order T^(1/a − 1) + T^(1/a − b/a); momentum lowers the second term and "
    "raises the first, so it helps where a > b and does not where a <= b.",
    source="theorem 1, section 3.1",
    plans={
        StudyScale.TINY: _plan((500, 2000, 8000), (1, 2, 3, 4, 5), 1000),
        StudyScale.PAPER: _plan((1000, 4000, 16_000, 64_000), tuple(range(1, 11)), 10_000),
    },
    judge=judge,
    about_large_models=False,
    caveats=("The theorem has no scale: `paper` is more of the same, larger T, more dimensions and seeds.",),
    axis="exponent over T, or change of the excess risk",
    order=20,
)
