"""`field` (beyond the paper): AdaPM and AdaPM-mini against the field, at equal tuning."""

from orchestrator.studies import paper_setting
from orchestrator.studies.evidence import Evidence, Scale
from orchestrator.studies.findings import Answer, Judgement, differences, incomplete, worse
from orchestrator.studies.shapes import PART, one_part, tuned
from orchestrator.studies.study import Study

OPTIMIZERS = (
    "adamw", "adapm", "adapm-mini", "muon", "soap", "lion", "apollo", "scale", "fira", "adamw-8bit", "adamw-4bit",
    "schedule-free-adamw",
)  # fmt: skip
NEEDS_TORCHAO = frozenset({"adamw-8bit", "adamw-4bit"})

ON_A_CPU = tuple(name for name in OPTIMIZERS if name not in NEEDS_TORCHAO)


def judge(evidence: Evidence) -> Judgement:
    """No optimizer of the field with less state than AdamW is below AdaPM in both loss and state."""
    if lacking := incomplete(evidence, [PART]):
        return lacking
    (part,) = evidence.parts
    mine = part.candidate("adapm")
    if mine is None or mine.loss is None or mine.state_bytes is None:
        return Judgement(measured=Answer.MISSING, sentence="No verdict: AdaPM has no finite loss.")
    above = [
        each.title
        for each in part.candidates
        if each.candidate != "adapm"
        and each.loss is not None
        and each.state_bytes is not None
        and not each.lost
        and each.state_bytes <= mine.state_bytes
        and each.loss.mean < mine.loss.mean
    ]
    shown = [each.title for each in part.candidates if not each.is_baseline and worse(each) is Answer.FAILS]
    sentence = (
        f"Lower loss with no more state than AdaPM: {', '.join(above) if above else 'nobody'}; shown to be better than "
        f"AdamW: {', '.join(shown) if shown else 'nobody'}."
    )
    return Judgement(measured=Answer.FAILS if above else Answer.HOLDS, sentence=sentence, measures=differences(part))


STUDY = Study(
    name="field",
    title="AdaPM and the field",
    question="Is there a memory-efficient optimizer that is better and smaller than AdaPM?",
    claim="Ours to ask: no optimizer with as little state ends at a lower loss than AdaPM.",
    source="beyond the paper",
    plans=one_part(
        tuned("field", ON_A_CPU, Scale.TINY, model="gpt2-tiny"),
        tuned("field", OPTIMIZERS, Scale.PAPER, model="gpt2-124m", seeds=(1, 2, 3)),
    ),
    judge=judge,
    caveats=(
        paper_setting.NO_STEPS,
        "The tiny scale leaves out 8- and 4-bit AdamW, whose blocks its matrices are too small for.",
    ),
    axis="loss minus AdamW's, nats",
    order=210,
)
