"""`field` (beyond the paper): AdaPM and AdaPM-mini against the field, at equal tuning."""

from orchestrator.studies import paper_setting, tiny_setting
from orchestrator.studies.evidence import Evidence, Scale
from orchestrator.studies.findings import Answer, Judgement, differences, incomplete, worse
from orchestrator.studies.study import Part, Plan, Study

OPTIMIZERS = (
    "adamw", "adapm", "adapm-mini", "muon", "soap", "lion", "apollo", "scale", "fira", "adamw-8bit", "adamw-4bit",
    "schedule-free-adamw",
)  # fmt: skip
PART = "GPT-2"
NEEDS_TORCHAO = frozenset({"adamw-8bit", "adamw-4bit"})


def _plan(scale: Scale) -> Plan:
    if scale is Scale.TINY:
        chosen = [tiny_setting.tuned(name) for name in OPTIMIZERS if name not in NEEDS_TORCHAO]
        spec = tiny_setting.comparison(
            "field", tiny_setting.workload(), chosen, baseline="adamw", tuning=tiny_setting.TUNING
        )
    else:
        model = "gpt2-124m"
        chosen = [paper_setting.tuned(model, name) for name in OPTIMIZERS]
        spec = paper_setting.comparison(
            "field", paper_setting.workload(model), chosen, baseline="adamw", seeds=(1, 2, 3),
            tuning=paper_setting.TUNING,
        )  # fmt: skip
    return Plan(parts=(Part(name=PART, spec=spec),))


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
    plans={scale: _plan(scale) for scale in Scale},
    judge=judge,
    caveats=(
        paper_setting.NO_STEPS,
        "The tiny scale leaves out 8- and 4-bit AdamW, whose blocks its matrices are too small for.",
    ),
    axis="loss minus AdamW's, nats",
    order=210,
)
