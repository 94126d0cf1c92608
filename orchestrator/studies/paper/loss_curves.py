"""`loss-curves`: AdaPM against AdamW, Adam-mini, Adafactor and GaLore in pretraining, at equal tuning."""

from orchestrator.studies import scales
from orchestrator.studies.evidence import Evidence, StudyScale
from orchestrator.studies.findings import (
    MARGIN_NATS,
    ClaimVerdict,
    Judgement,
    all_hold,
    difference,
    differences,
    figure_sentence,
    incomplete,
    is_on_par,
    worse,
)
from orchestrator.studies.scales import plans, tuned_comparison
from orchestrator.studies.study import Study

OPTIMIZERS = ("adamw", "adapm", "adam-mini", "adafactor", "galore")
SLOWER = ("adam-mini", "adafactor", "galore")
MODELS = {
    StudyScale.TINY: ("gpt2-tiny", "llama-tiny"),
    StudyScale.MIDDLE: ("gpt2-nano", "gpt2-micro"),
    StudyScale.PAPER: ("gpt2-124m", "gpt2-355m", "gpt2-1.5b", "llama-130m", "llama-340m"),
}


def judge(evidence: Evidence) -> Judgement:
    """On every model AdaPM is on par with AdamW, and the others are worse than it."""
    if lacking := incomplete(evidence, [part.name for part in STUDY.plans[evidence.scale].parts]):
        return lacking
    par = [is_on_par(part.candidate("adapm")) for part in evidence.parts]
    slower = [worse(part.candidate(name)) for part in evidence.parts for name in SLOWER]
    measures = [
        each.model_copy(update={"name": f"{each.name}, {part.name}"})
        for part in evidence.parts
        for each in differences(part)
    ]
    count = sum(each is ClaimVerdict.HOLDS for each in slower)
    told = "; ".join(
        f"{part.name}: {figure_sentence(difference(found), unit=' nats')}"
        for part in evidence.parts
        if (found := part.candidate("adapm")) is not None
    )
    sentence = (
        f"AdaPM against AdamW, {told}; worse than AdamW are {count} of {len(slower)} pairs of another optimizer and a "
        "model."
    )
    return Judgement(measured=all_hold([*par, *slower]), sentence=sentence, measures=tuple(measures))


STUDY = Study(
    name="loss-curves",
    title="Pretraining losses",
    question="Does AdaPM train as well as AdamW, and better than the other memory-efficient optimizers?",
    claim="AdaPM is on par with or better than AdamW on GPT-2 (124M, 330M, 1.5B) and Llama (130M, 340M); Adam-mini, "
    "Adafactor and GaLore are slower.",
    source="figures 1a and 2",
    plans=plans(
        lambda scale: [
            tuned_comparison(f"loss-curves {model}", OPTIMIZERS, scale, model=model, part=model)
            for model in MODELS[scale]
        ]
    ),
    judge=judge,
    caveats=(
        scales.NO_STEPS,
        f"On par: the whole 95 % interval of the difference lies below {MARGIN_NATS} nats.",
        "Only the learning rate is tuned. Warm-up, betas, weight decay and clipping are the same for all; a search of "
        "these as well can shrink a difference.",
    ),
    axis="loss minus AdamW's, nats",
    order=40,
)
