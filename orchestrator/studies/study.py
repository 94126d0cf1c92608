"""`Study`: one claim of the paper (or of ours) as data: what to run at which scale, and a pure function to its verdict.

    plans ─► experiments (comparisons, sweeps) ─► records ─► `gathering.py` ─► Evidence ─► `judge` ─► Finding

A study has no training code of its own. A new one is one file in this folder with a `STUDY`; `registry.py` finds it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from orchestrator.experiments import ComparisonSpec
from orchestrator.studies.cost import device_seconds
from orchestrator.studies.evidence import Evidence, Scale
from orchestrator.studies.findings import Judgement
from orchestrator.sweeps import SweepSpec
from worker.record import Observation, Result

Numbers = dict[str, float]
"""Named figures."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """One experiment of a study."""

    name: str
    spec: ComparisonSpec | SweepSpec

    def key(self) -> str:
        """Its idempotency key: by content, so that studies share experiments and a re-run finds what there is."""
        return f"study-{self.spec.content_hash()[:40]}"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a study does at one scale."""

    parts: tuple[Part, ...] = ()
    compute: Callable[[], Numbers] | None = None
    """What is computed without training, in seconds."""
    version: str = ""
    """Of `compute`: figures of another version are not compared."""

    def run_count(self) -> int:
        """Runs, at most."""
        return sum(part.spec.run_count() for part in self.parts)

    def device_hours(self) -> float:
        """Roughly, by the FLOPs of all runs (`cost.py`)."""
        return sum(device_seconds(part.spec) for part in self.parts) / 3600.0


@dataclass(frozen=True, kw_only=True)
class Study:
    """One question with its claim, its plans and its judge."""

    name: str
    title: str
    question: str
    claim: str
    """What the paper says, in a sentence; of studies beyond the paper, what is held against what."""
    source: str
    """Where the paper says so."""
    plans: Mapping[Scale, Plan]
    judge: Callable[[Evidence], Judgement]
    """Pure: the same evidence gives the same words."""
    about_large_models: bool = True
    """Whether the claim is about models that the tiny scale does not train."""
    caveats: tuple[str, ...] = ()
    """Where the setting is ours because the paper gives none."""
    observe: Callable[[Sequence[Observation]], Numbers] | None = None
    """From what the probes of a run saw to the few figures that are kept of it. Pure."""
    extract: Callable[[Result], Numbers] | None = None
    """From a run's result to figures that are kept besides its loss. Pure."""
    fits: bool = False
    """Whether scaling laws are fitted over the parts."""
    axis: str = "measured"
    """What the figures of its finding are, for the figure's axis."""
    order: int = field(default=100)
    """Place in lists: the paper's order."""
