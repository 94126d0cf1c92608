"""`rank-and-interval`: how much AdaPM depends on the rank of its momentum and on how often it is drawn anew."""

from orchestrator.studies import scales
from orchestrator.studies.evidence import Evidence, StudyScale
from orchestrator.studies.findings import MARGIN_NATS, Judgement, all_hold, differences, differs_within, incomplete
from orchestrator.studies.scales import GPT2, Variant, ablation, plans
from orchestrator.studies.study import Study, StudyPart

DEFAULT = "r = 5 %, T = 100"
RATIOS = (0.02, 0.10, 0.50)
INTERVALS = {
    StudyScale.TINY: (5, 20, 50),
    StudyScale.MIDDLE: (10, 50, 400),
    StudyScale.PAPER: (10, 50, 1000, 5000),
}


def _part(scale: StudyScale) -> StudyPart:
    variants = {DEFAULT: Variant()}
    variants |= {f"r = {ratio:.0%}".replace("%", " %"): Variant(options={"rank_ratio": ratio}) for ratio in RATIOS}
    variants |= {f"T = {each}": Variant(options={"refresh_interval": each}) for each in INTERVALS[scale]}
    return ablation("rank-and-interval", variants, scale, baseline=DEFAULT, paper_model="gpt2-1.5b")


def judge(evidence: Evidence) -> Judgement:
    """Every setting ends within the margin of the default, neither above it nor below."""
    if lacking := incomplete(evidence, [GPT2]):
        return lacking
    (part,) = evidence.parts
    others = [each for each in part.candidates if not each.is_baseline]
    found = [each.value for each in differences(part) if each.value is not None]
    spread = f"from {min(found):+.3f} to {max(found):+.3f} nats" if found else "unknown"
    sentence = f"Against {DEFAULT} the other {len(others)} settings end {spread} on average."
    return Judgement(
        measured=all_hold(differs_within(each, -MARGIN_NATS, MARGIN_NATS) for each in others),
        sentence=sentence,
        measures=differences(part),
        notes=(f"They overlap if every 95 % interval lies between -{MARGIN_NATS} and +{MARGIN_NATS} nats.",),
    )


STUDY = Study(
    name="rank-and-interval",
    title="Rank and refresh interval",
    question="How much does AdaPM depend on its rank r and its interval T?",
    claim="Curves for r in {2, 5, 10, 50} % and T in {10, 50, 100, 1000, 5000} overlap: their final losses are alike.",
    source="figure 4b",
    plans=plans(lambda scale: (_part(scale),)),
    judge=judge,
    caveats=(
        scales.NO_STEPS,
        f"They overlap where final losses differ by no more than {MARGIN_NATS} nats, up or down, which is ours; the "
        "paper shows a picture.",
        "The figure's caption says GPT-2 1.5B, the text 124M; ours is the caption's. On a CPU the training is shorter "
        "than the paper's larger T: its T are 5 to 100 at the tiny scale, 10 to 400 at the middle one.",
    ),
    axis="loss minus the default's, nats",
    order=70,
)
