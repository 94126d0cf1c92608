"""Shares: what an experiment of any kind asks for, taken apart into candidates on workloads, each with its runs.

    comparison  a share a candidate        scaling  a share a candidate and cell        sweep  a share a candidate

They are what estimates are made of (`estimates.py`): a share has one model, one optimizer and one length of run.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from optim.catalog import Scalar
from orchestrator.experiments import Candidate, ComparisonSpec
from orchestrator.scaling_spec import ScalingSpec
from orchestrator.sweeps import SweepSpec
from worker.spec import Workload


@dataclass(frozen=True, kw_only=True)
class Share:
    """The runs of one candidate on one workload."""

    candidate: str
    optimizer: str
    options: Mapping[str, Scalar]
    """Those that all of its runs have."""
    searched: frozenset[str]
    """Hyperparameters that differ from run to run, but for the learning rate."""
    has_rules: bool
    """Whether some blocks keep something else than what the optimizer's plan says."""
    workload: Workload
    runs: int
    """At most, where the experiment may grow."""

    def tokens(self) -> int:
        """Of all of its runs."""
        return self.runs * self.workload.tokens()


def shares(spec: ComparisonSpec | SweepSpec) -> tuple[Share, ...]:
    """All shares of an experiment, in the order of its cells and candidates."""
    if isinstance(spec, SweepSpec):
        return tuple(_of_a_sweep(spec))
    if isinstance(spec, ScalingSpec):
        cells = (spec.comparison(cell) for cell in spec.cells())
        return tuple(share for comparison in cells for share in _of_a_comparison(comparison))
    return tuple(_of_a_comparison(spec))


def _of_a_comparison(spec: ComparisonSpec) -> Iterator[Share]:
    for candidate in spec.candidates:
        yield Share(
            candidate=candidate.name(),
            optimizer=candidate.optimizer,
            options=candidate.options,
            searched=frozenset(),
            has_rules=bool(candidate.rules),
            workload=spec.workload,
            runs=_runs_of(spec, candidate),
        )


def _runs_of(spec: ComparisonSpec, candidate: Candidate) -> int:
    """As `ComparisonSpec.run_count`, of one candidate."""
    rates = len(candidate.learning_rates)
    if spec.tuning is None:
        return rates * len(spec.seeds)
    return (rates + spec.tuning.extend_grid) * len(spec.tuning.seeds) + len(spec.seeds)


def _of_a_sweep(spec: SweepSpec) -> Iterator[Share]:
    for searched in spec.candidates:
        yield Share(
            candidate=searched.name(),
            optimizer=searched.optimizer,
            options=searched.options,
            searched=frozenset(searched.space),
            has_rules=bool(searched.rules),
            workload=spec.workload,
            runs=spec.trials_each(),
        )
