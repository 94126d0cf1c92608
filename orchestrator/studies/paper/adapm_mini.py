"""`adapm-mini`: AdaPM on top of Adam-mini against AdamW."""

from orchestrator.studies import scales
from orchestrator.studies.evidence import StudyScale
from orchestrator.studies.findings import on_par_with_adamw
from orchestrator.studies.scales import GPT2, plans, tuned_comparison
from orchestrator.studies.study import Study

OPTIMIZERS = ("adamw", "adam-mini", "adapm-mini")
MODELS = {StudyScale.TINY: "gpt2-tiny", StudyScale.MIDDLE: "gpt2-micro", StudyScale.PAPER: "gpt2-1.5b"}

STUDY = Study(
    name="adapm-mini",
    title="AdaPM-mini",
    question="Does AdaPM lose anything when it is combined with Adam-mini?",
    claim="On GPT-2 1.5B the combination is on par with AdamW, with about 5 % of its optimizer state.",
    source="figure 4c",
    plans=plans(lambda scale: (tuned_comparison("adapm-mini", OPTIMIZERS, scale, model=MODELS[scale]),)),
    judge=on_par_with_adamw(
        "adapm-mini",
        GPT2,
        against="Against AdamW",
        unit=" nats",
        most_state=0.05,
    ),
    caveats=(scales.NO_STEPS,),
    axis="loss minus AdamW's, nats",
    order=80,
)
