"""`field` (beyond the paper): AdaPM and AdaPM-mini against the field, at equal tuning."""

from orchestrator.studies import scales
from orchestrator.studies.evidence import Evidence, StudyScale
from orchestrator.studies.findings import Judgement, differences, incomplete, missing, nobody_lower
from orchestrator.studies.scales import GPT2, plans, tuned_comparison
from orchestrator.studies.study import Study
from worker.words import pluralize

OPTIMIZERS = (
    "adamw", "adapm", "adapm-mini", "muon", "soap", "lion", "apollo", "scale", "fira", "adamw-8bit", "adamw-4bit",
    "schedule-free-adamw",
)  # fmt: skip
NEEDS_TORCHAO = frozenset({"adamw-8bit", "adamw-4bit"})

ON_A_CPU = tuple(name for name in OPTIMIZERS if name not in NEEDS_TORCHAO)
MODELS = {StudyScale.TINY: "gpt2-tiny", StudyScale.MIDDLE: "gpt2-nano", StudyScale.PAPER: "gpt2-124m"}


def judge(evidence: Evidence) -> Judgement:
    """No optimizer with at most AdaPM's state ends below it by more than the margin, and each is shown not to."""
    if lacking := incomplete(evidence, [GPT2]):
        return lacking
    (part,) = evidence.parts
    mine = part.candidate("adapm")
    if mine is None or mine.loss is None or mine.state_bytes is None:
        return missing("AdaPM has no finite loss")
    rivals = [
        each
        for each in part.candidates
        if not each.is_baseline and each.state_bytes is not None and each.state_bytes <= mine.state_bytes
    ]
    among = f"{pluralize(len(rivals), 'optimizer')} with no more state than AdaPM"
    return nobody_lower(rivals, among=among, measures=differences(part))


STUDY = Study(
    name="field",
    title="AdaPM and the field",
    question="Is there a memory-efficient optimizer that is better and smaller than AdaPM?",
    claim="Ours to ask: no optimizer with as little state ends at a lower loss than AdaPM.",
    source="beyond the paper",
    plans=plans(
        lambda scale: (
            tuned_comparison(
                "field",
                OPTIMIZERS if scale is StudyScale.PAPER else ON_A_CPU,
                scale,
                model=MODELS[scale],
                baseline="adapm",
            ),
        )
    ),
    judge=judge,
    caveats=(
        scales.NO_STEPS,
        "On a CPU 8- and 4-bit AdamW are left out: the matrices are too small for their blocks.",
    ),
    axis="loss minus AdaPM's, nats",
    order=210,
)
