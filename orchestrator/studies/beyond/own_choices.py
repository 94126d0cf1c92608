"""`own-choices` (beyond the paper): AdaPM's own constants, each changed alone and tuned as the paper's setting is."""

from orchestrator.studies import scales
from orchestrator.studies.evidence import Evidence, StudyScale
from orchestrator.studies.findings import Judgement, differences, incomplete, nobody_lower
from orchestrator.studies.scales import GPT2, Variant, ablation, plans
from orchestrator.studies.study import Study, StudyPart
from worker.words import pluralize

PAPER = "paper's setting"
QUERIES_AND_KEYS = ("*.attn.c_attn.weight:query", "*.attn.c_attn.weight:key")
MLP = ("*.mlp.*.weight",)
FIFTH = {StudyScale.TINY: 26, StudyScale.MIDDLE: 10, StudyScale.PAPER: 154}
"""The rank that is 20 % of the models' widths, 128, 48 and 768; the paper's is 5 %."""
REFRESH_STEPS = {StudyScale.TINY: (20, 0), StudyScale.MIDDLE: (20, 0), StudyScale.PAPER: (1000, 0)}


def _part(scale: StudyScale) -> StudyPart:
    variants = {
        PAPER: Variant(),
        "no clip": Variant(options={"clip": None}),
        "lr scale 0.5": Variant(options={"momentum_free_lr_scale": 0.5}),
        "lr scale 1": Variant(options={"momentum_free_lr_scale": 1.0}),
        "rank 20 % of Q, K": _ranks(QUERIES_AND_KEYS, scale),
        "rank 20 % of the MLP": _ranks(MLP, scale),
        "3 iterations": Variant(options={"inner_iterations": 3}),
        **{f"T = {steps}" if steps else "no refresh": Variant(options={"refresh_interval": steps})
           for steps in REFRESH_STEPS[scale]},
        "moments debiased": Variant(options={"debias_moments": True}),
    }  # fmt: skip
    return ablation("own-choices", variants, scale, baseline=PAPER)


def _ranks(patterns: tuple[str, ...], scale: StudyScale) -> Variant:
    """A fifth of the width for blocks of one kind; the others keep the paper's rank."""
    return Variant(rules=tuple(f"{pattern}=rank:{FIFTH[scale]}" for pattern in patterns))


def judge(evidence: Evidence) -> Judgement:
    """No change ends below the paper's setting by more than the margin, and each is shown not to."""
    if lacking := incomplete(evidence, [GPT2]):
        return lacking
    (part,) = evidence.parts
    changes = [each for each in part.candidates if not each.is_baseline]
    return nobody_lower(
        changes, among=f"{pluralize(len(changes), 'change')} of the paper's setting", measures=differences(part)
    )


STUDY = Study(
    name="own-choices",
    title="AdaPM's own choices",
    question="Are the paper's clip, learning-rate factor, ranks, iterations and refresh interval the best ones?",
    claim="Ours to ask: no single change of a constant ends at a lower loss than the paper's setting.",
    source="beyond the paper",
    plans=plans(lambda scale: (_part(scale),)),
    judge=judge,
    caveats=(scales.NO_STEPS, "One constant is changed at a time; what changes do together is not looked at."),
    axis="loss minus the paper's setting's, nats",
    order=205,
)
