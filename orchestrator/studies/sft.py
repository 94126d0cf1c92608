"""`sft`: supervised fine-tuning with AdaPM against AdamW."""

from orchestrator.experiments import Candidate, ComparisonSpec, Tuning
from orchestrator.studies import tiny_setting
from orchestrator.studies.evidence import Evidence, Scale
from orchestrator.studies.findings import Judgement, difference, differences, incomplete, missing, on_par, said
from orchestrator.studies.study import Part, Plan, Study
from worker.spec import Budget, DataSpec, Evaluation, Execution, Resources, Schedule, Workload
from worker.tasks.specs import SftTask

PART = "answers"
OPTIMIZERS = ("adamw", "adapm")


def _tiny() -> Part:
    work = Workload(
        task=SftTask(),
        model="gpt2-tiny",
        data=DataSpec(dataset="chats", sequence_length_tokens=64),
        budget=Budget(steps=120, batch_sequences=8),
        schedule=Schedule(warmup_steps=12),
        evaluation=Evaluation(every_steps=40, sequences=64),
    )
    spec = tiny_setting.comparison(
        "sft", work, [tiny_setting.tuned(name) for name in OPTIMIZERS], baseline="adamw", tuning=tiny_setting.TUNING
    )
    return Part(name=PART, spec=spec)


def _paper() -> Part:
    work = Workload(
        task=SftTask(),
        model="llama3-8b",
        initial_weights="meta-llama/Meta-Llama-3-8B",
        data=DataSpec(dataset="ultrafeedback", tokenizer="llama3", sequence_length_tokens=2048),
        budget=Budget(steps=1500, batch_sequences=128),
        schedule=Schedule(warmup_steps=50),
        evaluation=Evaluation(every_steps=100, sequences=256),
        precision="bf16",
        execution=Execution(micro_batch_sequences="auto", activation_checkpointing=True),
    )
    spec = ComparisonSpec(
        name="study sft, paper",
        workload=work,
        candidates=tuple(Candidate(optimizer=name, learning_rates=(2.5e-6, 5e-6, 1e-5)) for name in OPTIMIZERS),
        seeds=(1, 2, 3),
        baseline="adamw",
        tuning=Tuning(seeds=(0,), extend_grid=2),
        resources=Resources(cpus=8, gpus=1),
    )
    return Part(name=PART, spec=spec)


def judge(evidence: Evidence) -> Judgement:
    """AdaPM ends on par with AdamW."""
    if lacking := incomplete(evidence, [PART]):
        return lacking
    (part,) = evidence.parts
    adapm, adamw = part.candidate("adapm"), part.candidate("adamw")
    if adapm is None or adamw is None:
        return missing("a candidate is missing")
    saved = ""
    if adapm.state_bytes and adamw.state_bytes:
        saved = f", with {1 - adapm.state_bytes / adamw.state_bytes:.0%} less optimizer state"
    sentence = f"Against AdamW, in nats per answer token: {said(difference(adapm))}{saved}."
    return Judgement(measured=on_par(adapm), sentence=sentence, measures=differences(part))


STUDY = Study(
    name="sft",
    title="Supervised fine-tuning",
    question="Does AdaPM fine-tune as well as AdamW?",
    claim="Llama3-8B on UltraFeedback: a perplexity like AdamW's with 43 % less memory.",
    source="figure 5b",
    plans={Scale.TINY: Plan(parts=(_tiny(),)), Scale.PAPER: Plan(parts=(_paper(),))},
    judge=judge,
    caveats=("The paper gives no setting of its fine-tuning: batch, steps and rates are ours.",),
    axis="loss minus AdamW's, nats per answer token",
    order=130,
)
