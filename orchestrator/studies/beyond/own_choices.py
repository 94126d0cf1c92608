"""`own-choices` (beyond the paper): AdaPM's own constants, each changed alone and tuned as the paper's setting is."""

from orchestrator.studies import scales
from orchestrator.studies.evidence import Evidence, StudyScale
from orchestrator.studies.findings import Judgement, differences, incomplete, nobody_lower
from orchestrator.studies.scales import GPT2, Variant, ablation, plans
from orchestrator.studies.study import Study, StudyPart
from worker.words import pluralize

PAPER = "paper's setting"
REFRESH_STEPS = {StudyScale.TINY: (20, 0), StudyScale.MIDDLE: (20, 0), StudyScale.PAPER: (1000, 0)}


def _part(scale: StudyScale) -> StudyPart:
    variants = {
        PAPER: Variant(),
        "no clip": Variant(options={"clip": None}),
        "clip 3": Variant(options={"clip": 3.0}),
        "lr scale 0.5": Variant(options={"momentum_free_lr_scale": 0.5}),
        "lr scale 1": Variant(options={"momentum_free_lr_scale": 1.0}),
        "rank 20 %": Variant(options={"rank_ratio": 0.2}),
        "3 iterations": Variant(options={"inner_iterations": 3}),
        **{f"T = {steps}" if steps else "no refresh": Variant(options={"refresh_interval": steps})
           for steps in REFRESH_STEPS[scale]},
        "moments debiased": Variant(options={"debias_moments": True}),
    }  # fmt: skip
    return ablation("own-choices", variants, scale, baseline=PAPER)


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
    question="Are the paper's clip, learning-rate factor, rank, iterations and refresh interval the best ones?",
    claim="Ours to ask: no single change of a constant ends at a lower loss than the paper's setting.",
    source="beyond the paper",
    plans=plans(lambda scale: (_part(scale),)),
    judge=judge,
    caveats=(scales.NO_STEPS, "One constant is changed at a time; what changes do together is not looked at."),
    axis="loss minus the paper's setting's, nats",
    order=205,
)
