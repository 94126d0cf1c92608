"""`sft`: supervised fine-tuning with AdaPM against AdamW."""

from orchestrator.kinds.tuning import Tuning
from orchestrator.studies.judges import on_par_with_adamw
from orchestrator.studies.paper.fine_tuning import Setting, both, plans
from orchestrator.studies.study import Study
from worker.spec.task import SftTask

PART = "answers"
TINY = Setting(
    task=SftTask(), length_tokens=64, steps=120, batch_sequences=8, warmup_steps=12, every_steps=40,
    candidates=both((2e-3, 4e-3, 8e-3)), tuning=Tuning(seeds=(0,), extend_grid=1),
)  # fmt: skip
PAPER = Setting(
    task=SftTask(), length_tokens=2048, steps=1500, batch_sequences=128, warmup_steps=50, every_steps=100,
    candidates=both((2.5e-6, 5e-6, 1e-5)), tuning=Tuning(seeds=(0,), extend_grid=2),
)  # fmt: skip

STUDY = Study(
    name="sft",
    title="Supervised fine-tuning",
    question="Does AdaPM fine-tune as well as AdamW?",
    claim="Llama3-8B on UltraFeedback: a perplexity like AdamW's with 43 % less memory.",
    source="figure 5b",
    plans=plans("sft", PART, tiny=TINY, paper=PAPER),
    judge=on_par_with_adamw(
        "adapm",
        PART,
        against="Against AdamW, in nats per answer token",
        saved=lambda share: f", with {1 - share:.0%} less optimizer state",
    ),
    caveats=("The paper gives no setting of its fine-tuning: batch, steps and rates are ours.",),
    axis="loss minus AdamW's, nats per answer token",
    order=130,
)
