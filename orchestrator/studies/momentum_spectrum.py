"""`momentum-spectrum`: how much of the momentum's energy its largest singular values hold, by the role of the block."""

from collections.abc import Sequence

from orchestrator.studies import probed
from orchestrator.studies.evidence import Evidence, Scale
from orchestrator.studies.findings import Judgement, above, all_of, incomplete, missing, said
from orchestrator.studies.study import Numbers, Plan, Study
from worker.record import Observation

MOST = 0.5
CLAIMED = ("query", "key", "MLP")


def observe(observations: Sequence[Observation]) -> Numbers:
    """Role → share of the energy in the top 5 % of the singular values."""
    return probed.by_role(observations, "momentum-spectrum", lambda v: v["energy_top_5_percent"])


def _plan(scale: Scale) -> Plan:
    return probed.plan(scale, "adamw", ("gradient-sparsity", "momentum-spectrum"))


def judge(evidence: Evidence) -> Judgement:
    """In query, key and MLP the top 5 % hold more than half of the energy."""
    if lacking := incomplete(evidence, [probed.PART]):
        return lacking
    found = probed.over_runs(evidence)
    if any(role not in found for role in CLAIMED):
        return missing("no run that ended well was observed")
    answers = [above(found[role], MOST) for role in CLAIMED]
    told = "; ".join(said(found[role], 2) for role in found)
    return Judgement(
        measured=all_of(answers),
        sentence=f"Energy in the top 5 % of the singular values, at a tenth of the training: {told}.",
        measures=tuple(found.values()),
    )


STUDY = Study(
    name="momentum-spectrum",
    title="Spectrum of momenta",
    question="Do few singular values hold most of the momentum's energy?",
    claim="In query, key and MLP blocks the top 5 % of the singular values hold most of the momentum's energy, on "
    "GPT-2 124M at 10 % of its training.",
    source="figure 2 of section 3.2",
    plans={scale: _plan(scale) for scale in Scale},
    judge=judge,
    observe=observe,
    caveats=("Ours is the mean over all layers; the paper shows the tenth.",),
    axis="share of the energy in the top 5 %",
    order=100,
)
