"""`scaling-law`: whether AdaPM's loss falls with size as AdamW's does, by the laws fitted over several comparisons."""

from orchestrator.analysis.laws.records import CandidateFit
from orchestrator.studies import scales
from orchestrator.studies.evidence import Evidence, StudyScale
from orchestrator.studies.findings import (
    MARGIN_NATS,
    ClaimVerdict,
    Judgement,
    Measure,
    all_hold,
    figure_sentence,
    incomplete,
    is_on_par,
    lies_within,
    missing,
)
from orchestrator.studies.scales import plans, tuned_comparison
from orchestrator.studies.study import Study

OPTIMIZERS = ("adamw", "adapm")
MODELS = {
    StudyScale.TINY: ("gpt2-nano", "gpt2-micro", "gpt2-tiny"),
    StudyScale.MIDDLE: ("gpt2-nano", "gpt2-micro", "gpt2-tiny"),
    StudyScale.PAPER: ("gpt2-40m", "gpt2-124m", "gpt2-355m", "gpt2-774m", "gpt2-1.5b"),
}
STEPS = 600
"""At the tiny scale: with fewer the larger models are not the better ones."""
EXPONENTS = ("alpha", "beta")
TOLERANCE = 0.02
"""Relative: a point so far off its law does not follow it."""


def judge(evidence: Evidence) -> Judgement:
    """AdaPM's points lie on a line of log L over log N, and by both laws its losses do not fall behind AdamW's as
    models grow."""
    if lacking := incomplete(evidence, [part.name for part in STUDY.plans[evidence.scale].parts]):
        return lacking
    if evidence.fit is None:
        return missing("no law could be fitted")
    fits = {fit.candidate: fit for fit in evidence.fit.fits}
    mine = fits.get("adapm")
    if mine is None or not mine.coefficients or mine.relative_error is None:
        return missing("AdaPM has too few trained points for a law")
    measures = [
        Measure(name=f"{name} of {fit.title}", value=each.value, low=each.low, high=each.high, n=len(fit.points))
        for fit in evidence.fit.fits
        for name, each in fit.coefficients.items()
        if name in EXPONENTS
    ]
    differences = [
        Measure(
            name=f"AdaPM − AdamW at {each.parameters:,}",
            value=each.difference.mean,
            low=each.difference.low,
            high=each.difference.high,
            note="nats, by both laws",
        )
        for each in mine.loss_differences
    ]
    follows, kept = _follows(mine), _keeps_up(evidence, mine)
    told = {
        ClaimVerdict.HOLDS: "does not fall behind AdamW with size",
        ClaimVerdict.FAILS: "falls behind AdamW with size",
    }.get(kept, "may fall behind AdamW with size or not")
    if mine.no_law:
        sentence = f"{evidence.fit.formula}: AdaPM's losses show no law, {mine.no_law}."
    else:
        law = {
            ClaimVerdict.HOLDS: "lie on its law",
            ClaimVerdict.FAILS: "lie off its law",
        }.get(follows, "may lie on its law or not")
        ends = "; ".join(figure_sentence(each, 4, " nats") for each in (differences[:1] + differences[1:][-1:]))
        sentence = f"{evidence.fit.formula}: AdaPM's points {law}, and it {told}: {ends or 'AdamW has no law'}."
    return Judgement(
        measured=ClaimVerdict.FAILS if ClaimVerdict.FAILS in (follows, kept) else all_hold((follows, kept)),
        sentence=sentence,
        measures=(*measures, *differences),
        notes=evidence.fit.notes,
    )


def _follows(mine: CandidateFit) -> ClaimVerdict:
    """Whether every point of AdaPM lies on its law, to within the tolerance: the whole interval over its seeds."""
    if mine.no_law:
        exponents = [mine.coefficients[name] for name in EXPONENTS if name in mine.coefficients]
        rises = any(each.high is not None and each.high < 0 for each in exponents)
        return ClaimVerdict.FAILS if rises else ClaimVerdict.UNDECIDED
    together = all_hold(
        lies_within(
            (each.loss if each.low is None else each.low, each.loss if each.high is None else each.high),
            (1 - TOLERANCE) * each.fitted,
            (1 + TOLERANCE) * each.fitted,
        )
        for each in mine.points
        if each.fitted is not None
    )
    return ClaimVerdict.FAILS if together is ClaimVerdict.IN_PART else together


def _keeps_up(evidence: Evidence, mine: CandidateFit) -> ClaimVerdict:
    """Whether AdaPM loses no more than the margin to AdamW from the smallest size to the largest, or is on par at each;
    it falls behind where the change is shown, and ends above the margin. Laws are those of the runs that were trained:
    where it lost some at a size and AdamW none, it does not keep up."""
    found = [each for part in evidence.parts if (each := part.candidate("adapm")) is not None and each.lost]
    if found:
        fails = any(is_on_par(each) is ClaimVerdict.FAILS for each in found)
        return ClaimVerdict.FAILS if fails else ClaimVerdict.UNDECIDED
    if mine.change is None:
        return ClaimVerdict.UNDECIDED
    low, high = mine.change.low, mine.change.high
    over = [each.difference.high for each in mine.loss_differences]
    if (high is not None and high <= MARGIN_NATS) or all(each is not None and each <= MARGIN_NATS for each in over):
        return ClaimVerdict.HOLDS
    at_the_largest = mine.loss_differences[-1].difference.low
    behind = low is not None and low > 0 and at_the_largest is not None and at_the_largest > MARGIN_NATS
    return ClaimVerdict.FAILS if behind else ClaimVerdict.UNDECIDED


STUDY = Study(
    name="scaling-law",
    title="Scaling law",
    question="Does AdaPM keep up as models grow?",
    claim="AdaPM's losses on GPT-2 from 40M to 1.5B follow a log-linear law, without degradation with size.",
    source="figure 5a",
    plans=plans(
        lambda scale: [
            tuned_comparison(f"scaling-law {model}", OPTIMIZERS, scale, model=model, part=model, tiny_steps=STEPS)
            for model in MODELS[scale]
        ]
    ),
    judge=judge,
    law="n0",
    caveats=(
        scales.NO_STEPS,
        f"No degradation: from the smallest model to the largest AdaPM loses no more than {MARGIN_NATS} nats to AdamW, "
        "which is ours; the paper shows a picture.",
    ),
    axis="exponent, or loss minus AdamW's",
    order=120,
)
