"""`sft` and `rlhf`: fine-tuning with AdaPM against AdamW, on answers and from a reward (ReMax).

At the tiny scale on generated chats with a tiny GPT-2, at the paper's on UltraFeedback with Llama3-8B.
"""

from dataclasses import dataclass

from orchestrator.kinds.comparison import Candidate
from orchestrator.kinds.tuning import Tuning
from orchestrator.studies import scales
from orchestrator.studies.evidence import Evidence, StudyScale
from orchestrator.studies.findings import (
    Judgement,
    difference,
    differences,
    figure_sentence,
    incomplete,
    is_on_par,
    judge_with_state,
    missing,
    on_par_with_adamw,
    state_share,
)
from orchestrator.studies.study import Plan, Study, StudyPart
from worker.spec.run import Budget, DataSpec, Evaluation, Execution, Resources, Schedule, Workload
from worker.spec.task import RlhfTask, SftTask

OPTIMIZERS = ("adamw", "adapm")
MOST_STATE = 0.57
"""Of AdamW's: the paper's 43 % less memory."""


@dataclass(frozen=True, kw_only=True)
class FineTuningSetup:
    """What differs between the studies, and between their scales."""

    task: SftTask | RlhfTask
    length_tokens: int
    steps: int
    batch_sequences: int
    warmup_steps: int
    every_steps: int
    """From one evaluation to the next."""
    candidates: tuple[Candidate, ...]


def both(learning_rates: tuple[float, ...]) -> tuple[Candidate, ...]:
    """AdamW and AdaPM on the same grid."""
    return tuple(Candidate(optimizer=name, learning_rates=learning_rates) for name in OPTIMIZERS)


def plans(name: str, part: str, *, tiny: FineTuningSetup, paper: FineTuningSetup) -> dict[StudyScale, Plan]:
    """One experiment at each scale."""
    small = Workload(
        task=tiny.task,
        model=scales.TINY_MODEL,
        data=DataSpec(dataset="chats", sequence_length_tokens=tiny.length_tokens),
        budget=Budget(steps=tiny.steps, batch_sequences=tiny.batch_sequences),
        schedule=Schedule(warmup_steps=tiny.warmup_steps),
        evaluation=Evaluation(every_steps=tiny.every_steps, sequences=scales.EVALUATION_SEQUENCES),
    )
    large = Workload(
        task=paper.task,
        model="llama3-8b",
        initial_weights="meta-llama/Meta-Llama-3-8B",
        data=DataSpec(dataset="ultrafeedback", tokenizer="llama3", sequence_length_tokens=paper.length_tokens),
        budget=Budget(steps=paper.steps, batch_sequences=paper.batch_sequences),
        schedule=Schedule(warmup_steps=paper.warmup_steps),
        evaluation=Evaluation(every_steps=paper.every_steps, sequences=scales.EVALUATION_SEQUENCES),
        precision="bf16",
        execution=Execution(micro_batch_sequences="auto", activation_checkpointing=True),
    )
    specs = {
        StudyScale.TINY: scales.comparison(
            StudyScale.TINY, name, small, tiny.candidates, baseline="adamw", tuning=Tuning()
        ),
        StudyScale.PAPER: scales.comparison(
            StudyScale.PAPER,
            name,
            large,
            paper.candidates,
            baseline="adamw",
            tuning=Tuning(),
            resources=Resources(cpus=8, gpus=1),
        ),
    }
    return {scale: Plan(parts=(StudyPart(name=part, spec=spec),)) for scale, spec in specs.items()}


SFT_TINY = FineTuningSetup(
    task=SftTask(), length_tokens=64, steps=120, batch_sequences=8, warmup_steps=12, every_steps=40,
    candidates=both((2e-3, 4e-3, 8e-3)),
)  # fmt: skip
SFT_PAPER = FineTuningSetup(
    task=SftTask(), length_tokens=2048, steps=1500, batch_sequences=128, warmup_steps=50, every_steps=100,
    candidates=both((2.5e-6, 5e-6, 1e-5)),
)  # fmt: skip

SFT = Study(
    name="sft",
    title="Supervised fine-tuning",
    question="Does AdaPM fine-tune as well as AdamW?",
    claim="Llama3-8B on UltraFeedback: a perplexity like AdamW's with 43 % less memory.",
    source="figure 5b",
    plans=plans("sft", "answers", tiny=SFT_TINY, paper=SFT_PAPER),
    judge=on_par_with_adamw(
        "adapm",
        "answers",
        against="Against AdamW, in nats per answer token",
        most_state=MOST_STATE,
    ),
    caveats=("The paper gives no setting of its fine-tuning: batch, steps and rates are ours.",),
    axis="loss minus AdamW's, nats per answer token",
    order=130,
)


MARGIN_REWARD = 0.05
"""How much less KL-penalized reward still counts as similar, of 1 at most; the paper shows curves only."""

RLHF_TINY = FineTuningSetup(
    task=RlhfTask(answer_tokens=8, reward="printable", kl_weight=0.01),
    length_tokens=24, steps=40, batch_sequences=16, warmup_steps=4, every_steps=20,
    candidates=both((5e-4, 1e-3, 2e-3)),
)  # fmt: skip
RLHF_PAPER = FineTuningSetup(
    task=RlhfTask(answer_tokens=512, reward="model", kl_weight=0.05),
    length_tokens=1024, steps=500, batch_sequences=64, warmup_steps=20, every_steps=50,
    candidates=both((5e-7, 1e-6, 2e-6)),
)  # fmt: skip


def reward_is_kept(evidence: Evidence) -> Judgement:
    """AdaPM's KL-penalized reward is not lower than AdamW's by more than the margin."""
    if lacking := incomplete(evidence, ["rewards"]):
        return lacking
    (part,) = evidence.parts
    adapm = part.candidate("adapm")
    if adapm is None or (adapm.difference is None and not adapm.lost):
        return missing("no pair of runs has a reward")
    kept = is_on_par(adapm, margin=MARGIN_REWARD)
    share = state_share(part, "adapm", MOST_STATE)
    sentence = f"KL-penalized reward that AdaPM lacks against AdamW, of 1 at most: {figure_sentence(difference(adapm))}"
    return judge_with_state(kept, share, sentence, differences(part))


RLHF = Study(
    name="rlhf",
    title="Reinforcement learning from a reward",
    question="Does AdaPM reach AdamW's reward in ReMax?",
    claim="Llama3-8B with ReMax: a reward like AdamW's with 43 % less memory.",
    source="figure 5c",
    plans=plans("rlhf", "rewards", tiny=RLHF_TINY, paper=RLHF_PAPER),
    judge=reward_is_kept,
    caveats=(
        "The paper names neither its reward model nor its setting; ours has a reward model of drawn weights, at the "
        "tiny scale a rule (printable answers). What is compared is what is trained for: reward less the KL penalty.",
    ),
    axis="KL-penalized reward that is lacking against AdamW",
    order=140,
)
