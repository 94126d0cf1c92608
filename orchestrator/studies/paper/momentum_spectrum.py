"""`momentum-spectrum`: how much of the momentum's energy its largest singular values hold, by the role of the block."""

from collections.abc import Sequence

from orchestrator.studies import probed
from orchestrator.studies.judges import roles_above
from orchestrator.studies.study import Numbers, Study
from worker.records.result import Observation

MOST = 0.5
CLAIMED = ("query", "key", "MLP")


def observe(observations: Sequence[Observation]) -> Numbers:
    """Role → share of the energy in the top 5 % of the singular values."""
    return probed.by_role(observations, "momentum-spectrum", lambda v: v["energy_top_5_percent"])


STUDY = Study(
    name="momentum-spectrum",
    title="Spectrum of momenta",
    question="Do few singular values hold most of the momentum's energy?",
    claim="In query, key and MLP blocks the top 5 % of the singular values hold most of the momentum's energy, on "
    "GPT-2 124M at 10 % of its training.",
    source="figure 2 of section 3.2",
    plans=probed.plans("adamw", probed.SHARED_KINDS),
    judge=roles_above(CLAIMED, MOST, "Energy in the top 5 % of the singular values"),
    observe=observe,
    caveats=("Ours is the mean over all layers; the paper shows the tenth.",),
    axis="share of the energy in the top 5 %",
    order=100,
)
