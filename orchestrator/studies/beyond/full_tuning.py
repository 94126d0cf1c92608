"""`full-tuning` (beyond the paper): AdaPM against AdamW with warm-up, betas, weight decay and clipping tuned, too."""

from orchestrator.kinds.comparison import Candidate
from orchestrator.kinds.tuning import Tuning
from orchestrator.studies import scales
from orchestrator.studies.evidence import Evidence, StudyScale
from orchestrator.studies.findings import (
    MARGIN_NATS,
    Judgement,
    all_hold_together,
    difference,
    figure_sentence,
    incomplete,
    is_on_par,
    together_notes,
)
from orchestrator.studies.scales import comparison, plans, tuned_candidate, workload
from orchestrator.studies.study import Study, StudyPart

MODELS = {
    StudyScale.TINY: ("gpt2-tiny", "llama-tiny"),
    StudyScale.MIDDLE: ("gpt2-nano",),
    StudyScale.PAPER: ("gpt2-124m", "llama-130m"),
}
TUNING = Tuning(
    search=("lr", "warmup", "beta1", "beta2", "weight_decay", "clip"),
    method="coordinate",
    trials=24,
    seeds=(1001, 1002),
)


def _part(scale: StudyScale, model: str) -> StudyPart:
    grids = [tuned_candidate(scale, model, optimizer) for optimizer in ("adamw", "adapm")]
    middles = [Candidate(optimizer=each.optimizer, learning_rates=(each.learning_rates[1],)) for each in grids]
    spec = comparison(scale, f"full-tuning {model}", workload(scale, model), middles, baseline="adamw", tuning=TUNING)
    return StudyPart(name=model, spec=spec)


def judge(evidence: Evidence) -> Judgement:
    """On every model AdaPM ends on par with AdamW."""
    if lacking := incomplete(evidence, [part.name for part in STUDY.plans[evidence.scale].parts]):
        return lacking
    found = [(part.name, part.candidate("adapm")) for part in evidence.parts]
    measures = [
        difference(adapm).model_copy(update={"name": f"AdaPM, {name}"}) for name, adapm in found if adapm is not None
    ]
    measured = all_hold_together(lambda tests: [is_on_par(adapm, tests) for _, adapm in found], len(found))
    return Judgement(
        measured=measured,
        sentence=f"Against AdamW: {'; '.join(figure_sentence(each, unit=' nats') for each in measures)}.",
        measures=tuple(measures),
        notes=together_notes(len(found), measured),
    )


STUDY = Study(
    name="full-tuning",
    title="Tuned in full",
    question="Does AdaPM still train as well as AdamW when more than the learning rate is tuned?",
    claim="Ours to ask: with warm-up, betas, weight decay and clipping tuned as well, by coordinate descents of as "
    "many trials, AdaPM is on par with AdamW.",
    source="beyond the paper",
    plans=plans(lambda scale: [_part(scale, model) for model in MODELS[scale]]),
    judge=judge,
    caveats=(
        scales.NO_STEPS,
        f"{TUNING.trials} settings are tried for each optimizer, on two seeds; the interval covers what a better "
        f"setting may still be worth. On par: the whole 95 % interval lies below {MARGIN_NATS} nats.",
    ),
    axis="loss minus AdamW's, nats",
    order=202,
)
