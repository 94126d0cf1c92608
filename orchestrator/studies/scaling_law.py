"""`scaling-law`: whether AdaPM's loss falls with size as AdamW's does, by the laws fitted over several comparisons."""

from orchestrator.fit_records import FitReport
from orchestrator.studies import paper_setting, tiny_setting
from orchestrator.studies.evidence import Evidence, Scale
from orchestrator.studies.findings import Answer, Judgement, Measure, incomplete, missing
from orchestrator.studies.shapes import tuned
from orchestrator.studies.study import Part, Plan, Study

OPTIMIZERS = ("adamw", "adapm")
BUDGETS = (75, 150, 300)
"""Steps at the tiny scale, where there is one size: the law is one in tokens."""
MODELS = ("gpt2-40m", "gpt2-124m", "gpt2-355m", "gpt2-774m", "gpt2-1.5b")
EXPONENTS = ("alpha", "beta")
LACK = 0.1
"""Of AdamW's exponent: so much less still counts as no degradation; the paper shows a picture."""
TOLERANCE = 0.02
"""Largest relative error of a law's points that still follow it: tuned losses of one size differ by 0.1 to 0.5 %."""


def _tiny(steps: int) -> Part:
    spec = tiny_setting.comparison(
        f"scaling-law {steps} steps",
        tiny_setting.workload(steps=steps),
        [tiny_setting.candidate(name) for name in OPTIMIZERS],
        baseline="adamw",
    )
    return Part(name=f"{steps} steps", spec=spec)


def judge(evidence: Evidence) -> Judgement:
    """AdaPM's points follow a power law, and its exponent is not smaller than AdamW's."""
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
    follows = mine.relative_error <= TOLERANCE
    against = [each.difference for each in mine.against_baseline]
    measures += [
        Measure(name=f"{each.exponent}, AdaPM − AdamW", value=each.difference.value, low=each.difference.low,
                high=each.difference.high)
        for each in mine.against_baseline
    ]  # fmt: skip
    degraded = any(each.high is not None and each.high < 0 for each in against)
    kept = bool(against) and all(_kept(each.low, evidence.fit) for each in against)
    measured = Answer.FAILS if degraded or not follows else Answer.HOLDS if kept else Answer.UNDECIDED
    slope = "is smaller than AdamW's" if degraded else "is as large as AdamW's" if kept else "may be smaller or not"
    sentence = (
        f"{evidence.fit.formula}: AdaPM's points lie {'on' if follows else 'off'} its law "
        f"({mine.relative_error:.1%} off), and its exponent {slope}."
    )
    return Judgement(measured=measured, sentence=sentence, measures=tuple(measures), notes=evidence.fit.notes)


def _kept(low: float | None, fit: FitReport) -> bool:
    """Whether an exponent is shown to lack no more than a tenth of AdamW's."""
    adamw = next((each for each in fit.fits if each.is_baseline), None)
    exponents = [each.value for name, each in adamw.coefficients.items() if name in EXPONENTS] if adamw else []
    return low is not None and bool(exponents) and low >= -LACK * min(exponents)


STUDY = Study(
    name="scaling-law",
    title="Scaling law",
    question="Does AdaPM keep up as models grow?",
    claim="AdaPM's losses on GPT-2 from 40M to 1.5B follow a log-linear law, without degradation with size.",
    source="figure 5a",
    plans={
        Scale.TINY: Plan(parts=tuple(_tiny(steps) for steps in BUDGETS)),
        Scale.PAPER: Plan(
            parts=tuple(
                tuned(f"scaling-law {model}", OPTIMIZERS, Scale.PAPER, model=model, part=model) for model in MODELS
            )
        ),
    },
    judge=judge,
    fits=True,
    caveats=(paper_setting.NO_STEPS, "The tiny scale has one model: its law is in tokens, not in parameters."),
    axis="exponent",
    order=120,
)
