"""`adapm-mini`: AdaPM on top of Adam-mini against AdamW."""

from orchestrator.studies import paper_setting, tiny_setting
from orchestrator.studies.evidence import Evidence, Scale
from orchestrator.studies.findings import Judgement, difference, differences, incomplete, missing, on_par, said
from orchestrator.studies.study import Part, Plan, Study

OPTIMIZERS = ("adamw", "adam-mini", "adapm-mini")
PART = "GPT-2"


def _plan(scale: Scale) -> Plan:
    if scale is Scale.TINY:
        spec = tiny_setting.comparison(
            "adapm-mini",
            tiny_setting.workload(),
            [tiny_setting.tuned(name) for name in OPTIMIZERS],
            baseline="adamw",
            tuning=tiny_setting.TUNING,
        )
    else:
        model = "gpt2-1.5b"
        spec = paper_setting.comparison(
            "adapm-mini",
            paper_setting.workload(model),
            [paper_setting.tuned(model, name) for name in OPTIMIZERS],
            baseline="adamw",
            tuning=paper_setting.TUNING,
        )
    return Plan(parts=(Part(name=PART, spec=spec),))


def judge(evidence: Evidence) -> Judgement:
    """AdaPM-mini ends on par with AdamW."""
    if lacking := incomplete(evidence, [PART]):
        return lacking
    (part,) = evidence.parts
    mini, adamw = part.candidate("adapm-mini"), part.candidate("adamw")
    if mini is None or adamw is None:
        return missing("a candidate is missing")
    saved = ""
    if mini.state_bytes and adamw.state_bytes:
        saved = f" with {mini.state_bytes / adamw.state_bytes:.1%} of its optimizer state"
    sentence = f"Against AdamW: {said(difference(mini), unit=' nats')}{saved}."
    return Judgement(measured=on_par(mini), sentence=sentence, measures=differences(part))


STUDY = Study(
    name="adapm-mini",
    title="AdaPM-mini",
    question="Does AdaPM lose anything when it is combined with Adam-mini?",
    claim="On GPT-2 1.5B the combination is on par with AdamW, with about 5 % of its optimizer state.",
    source="figure 4c",
    plans={scale: _plan(scale) for scale in Scale},
    judge=judge,
    caveats=(paper_setting.NO_STEPS,),
    axis="loss minus AdamW's, nats",
    order=80,
)
