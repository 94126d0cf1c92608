"""`rlhf`: reinforcement learning from a reward (ReMax) with AdaPM against AdamW."""

from orchestrator.experiments import Candidate, ComparisonSpec
from orchestrator.studies import tiny_setting
from orchestrator.studies.evidence import Evidence, Scale
from orchestrator.studies.findings import Answer, Judgement, difference, differences, incomplete, missing, said
from orchestrator.studies.study import Part, Plan, Study
from worker.spec import Budget, DataSpec, Evaluation, Execution, Resources, Schedule, Workload
from worker.tasks.specs import RlhfTask

PART = "rewards"
OPTIMIZERS = ("adamw", "adapm")
MARGIN_REWARD = 0.05
"""How much less reward still counts as similar, of a reward between 0 and 1; the paper shows curves only."""


def _tiny() -> Part:
    work = Workload(
        task=RlhfTask(answer_tokens=8, reward="printable", kl_weight=0.01),
        model="gpt2-tiny",
        data=DataSpec(dataset="chats", sequence_length_tokens=24),
        budget=Budget(steps=40, batch_sequences=16),
        schedule=Schedule(warmup_steps=4),
        evaluation=Evaluation(every_steps=20, sequences=64),
    )
    chosen = [tiny_setting.candidate(name, learning_rates=(1e-3,)) for name in OPTIMIZERS]
    return Part(name=PART, spec=tiny_setting.comparison("rlhf", work, chosen, baseline="adamw"))


def _paper() -> Part:
    work = Workload(
        task=RlhfTask(answer_tokens=512, reward="model", kl_weight=0.05),
        model="llama3-8b",
        initial_weights="meta-llama/Meta-Llama-3-8B",
        data=DataSpec(dataset="ultrafeedback", tokenizer="llama3", sequence_length_tokens=1024),
        budget=Budget(steps=500, batch_sequences=64),
        schedule=Schedule(warmup_steps=20),
        evaluation=Evaluation(every_steps=50, sequences=256),
        precision="bf16",
        execution=Execution(micro_batch_sequences="auto", activation_checkpointing=True),
    )
    spec = ComparisonSpec(
        name="study rlhf, paper",
        workload=work,
        candidates=tuple(Candidate(optimizer=name, learning_rates=(5e-7, 1e-6, 2e-6)) for name in OPTIMIZERS),
        seeds=(1, 2, 3),
        baseline="adamw",
        resources=Resources(cpus=8, gpus=1),
    )
    return Part(name=PART, spec=spec)


def judge(evidence: Evidence) -> Judgement:
    """AdaPM's reward is not lower than AdamW's by more than the margin."""
    if lacking := incomplete(evidence, [PART]):
        return lacking
    (part,) = evidence.parts
    adapm = part.candidate("adapm")
    if adapm is None or adapm.difference is None:
        return missing("no pair of runs has a reward")
    # A run that lowers the reward is "diverged" for a table of losses; here it is an answer.
    found = adapm.difference
    if found.low is None or found.high is None:
        measured = Answer.UNDECIDED
    else:
        over = found.low > MARGIN_REWARD
        measured = Answer.HOLDS if found.high <= MARGIN_REWARD else Answer.FAILS if over else Answer.UNDECIDED
    sentence = f"Reward that AdaPM lacks against AdamW, of 1 at most: {said(difference(adapm))}."
    return Judgement(measured=measured, sentence=sentence, measures=differences(part))


STUDY = Study(
    name="rlhf",
    title="Reinforcement learning from a reward",
    question="Does AdaPM reach AdamW's reward in ReMax?",
    claim="Llama3-8B with ReMax: a reward like AdamW's with 43 % less memory.",
    source="figure 5c",
    plans={Scale.TINY: Plan(parts=(_tiny(),)), Scale.PAPER: Plan(parts=(_paper(),))},
    judge=judge,
    caveats=(
        "The paper names neither its reward model nor its setting; ours has a reward model of drawn weights, at the "
        "tiny scale a rule (printable answers).",
    ),
    axis="reward that is lacking against AdamW",
    order=140,
)
