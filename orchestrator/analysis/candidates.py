"""A candidate's runs, put together: its trials, and the judged runs at the setting that was found."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf
from statistics import fmean

from orchestrator.analysis.estimator import JudgedRuns
from orchestrator.analysis.sequential import Look, looks
from orchestrator.analysis.statistics import mean_interval
from orchestrator.jobs import TERMINAL, RunStatus
from orchestrator.kinds.comparison import Candidate, ComparisonSpec
from orchestrator.records import SIGNIFICANCE, Interval, RunRecord
from orchestrator.tuning.tuner import RunFact, Setting, mean_losses
from worker.records.result import Result


@dataclass(frozen=True, kw_only=True)
class RunGroup:
    """Runs of one candidate that belong together: those of a trial, or the judged ones."""

    lr: float
    """Of replicates, whose settings differ, the first one's."""
    runs: tuple[RunRecord, ...]
    setting: Setting
    looks: Mapping[int, Look] | None = None
    """Where seeds are added while verdicts are open."""
    replicates: int = 1
    seeds: tuple[int, ...] = ()
    """Of the specification, which say whose replicate a run is."""

    @cached_property
    def lost(self) -> frozenset[int]:
        """The seeds whose run has ended for good without a loss that counts."""
        return frozenset(run.seed for run in self.runs if has_ended(run) and loss_of(run) is None)

    def losses(self) -> dict[int, float]:
        """Seed → final loss, of runs that were not lost."""
        return {run.seed: loss for run in self.runs if (loss := loss_of(run)) is not None}

    def units(self) -> dict[int, float]:
        """What is compared: losses by seed, or their means by replicate."""
        losses = self.losses()
        if self.replicates == 1:
            return losses
        means: dict[int, list[float]] = defaultdict(list)
        for seed, loss in losses.items():
            means[self.seeds.index(seed) % self.replicates].append(loss)
        return {replicate: fmean(found) for replicate, found in means.items()}

    def val_loss(self) -> Interval | None:
        """Mean over what is compared, with its interval."""
        return mean_interval([*self.units().values()], looks=self.looks)

    def results(self) -> tuple[Result, ...]:
        """The results that there are."""
        return tuple(run.result for run in self.runs if run.result is not None)

    def runs_by_seed(self) -> dict[int, RunRecord]:
        """The runs by their seeds."""
        return {run.seed: run for run in self.runs}

    def rank(self) -> tuple[int, float]:
        """Sorts the best trial first: the fewest runs without a loss, then the lowest mean."""
        losses = self.losses()
        return (len(self.runs) - len(losses), fmean(losses.values())) if losses else (len(self.runs) + 1, inf)


@dataclass(frozen=True, kw_only=True)
class CandidateSummary:
    """One candidate over all of its runs."""

    candidate: Candidate
    rates: tuple[RunGroup, ...]
    """Its trials, ascending by rate; of a tuned comparison over the tuning seeds."""
    final: RunGroup | None
    """The seeds that judge; None before they are there, and where nothing was tuned."""
    tuned: bool
    is_at_edge: bool
    """Whether the best trial is the lowest or highest rate that was tried."""

    @property
    def chosen(self) -> RunGroup:
        """The best trial."""
        return _best_trial(self.rates)

    @property
    def best(self) -> RunGroup:
        """The runs that are compared; none before they begin."""
        if self.final is not None or not self.tuned:
            return self.final or self.chosen
        return RunGroup(lr=self.chosen.lr, runs=(), setting={})

    def runs(self) -> tuple[RunRecord, ...]:
        """Every run of the candidate."""
        trials = tuple(run for rate in self.rates for run in rate.runs)
        return trials if self.final is None else (*trials, *self.final.runs)

    def judged(self) -> JudgedRuns:
        """What the estimator takes."""
        best = self.best
        ended = frozenset(run.seed for run in best.runs if has_ended(run))
        return JudgedRuns(losses=best.units(), lost=best.lost, ended=ended, is_at_edge=self.is_at_edge)


def summaries(spec: ComparisonSpec, runs: Iterable[RunRecord]) -> tuple[CandidateSummary, ...]:
    """Every candidate, in the order of the specification."""
    by_candidate: dict[str, list[RunRecord]] = {}
    for run in runs:
        by_candidate.setdefault(run.candidate, []).append(run)
    return tuple(_summary(spec, each, by_candidate.get(each.name(), [])) for each in spec.candidates)


def looks_of(spec: ComparisonSpec, comparisons: int = 1) -> Mapping[int, Look] | None:
    """The levels of its looks where it adds seeds, for each of so many intervals; None where all run at once."""
    if spec.sequential is None:
        return None
    return looks(spec.sequential.first_seeds, len(spec.seeds), SIGNIFICANCE / max(comparisons, 1))


def loss_of(run: RunRecord) -> float | None:
    """The final loss of a run that was not lost."""
    return run.result.judged_loss() if run.result else None


def has_ended(run: RunRecord) -> bool:
    """Whether a run has a result, or was stopped because its time was up: which nobody will change."""
    return run.result is not None or run.limit_reached is not None


def run_fact(run: RunRecord) -> RunFact:
    """What tuning knows of a run; one whose time was up is a failed one."""
    return RunFact(
        candidate=run.candidate,
        model=run.model,
        steps=run.steps_total,
        lr=run.lr,
        seed=run.seed,
        status=run.status if run.limit_reached is None else RunStatus.FAILED,
        loss=loss_of(run),
    )


def _summary(spec: ComparisonSpec, candidate: Candidate, runs: Sequence[RunRecord]) -> CandidateSummary:
    of_looks = looks_of(spec)
    trial_runs = [run for run in runs if run.seed not in spec.seeds] if spec.tuning else runs
    judged = [run for run in runs if run.seed in spec.seeds] if spec.tuning else []
    planned = candidate.learning_rates if spec.tuning is None or spec.tuning.method == "grid" else ()
    by_rate: dict[float, list[RunRecord]] = {lr: [] for lr in planned}
    for run in trial_runs:
        by_rate.setdefault(run.lr, []).append(run)
    rates = tuple(
        _group(spec, lr, mine, None if spec.tuning else of_looks)
        for lr, mine in sorted((by_rate or {candidate.own_rate(): []}).items())
    )
    return CandidateSummary(
        candidate=candidate,
        rates=rates,
        final=_group(spec, judged[0].lr, judged, of_looks) if judged else None,
        tuned=spec.tuning is not None,
        is_at_edge=_is_at_edge(spec, candidate.name(), rates),
    )


def _group(spec: ComparisonSpec, lr: float, runs: Sequence[RunRecord], of_looks: Mapping[int, Look] | None) -> RunGroup:
    first = next((run for run in runs if run.spec is not None), None)
    setting = spec.searched_parameters(first.position, first.spec) if first is not None and first.spec else {}
    is_judged = any(run.seed in spec.seeds for run in runs)
    return RunGroup(
        lr=lr,
        runs=tuple(runs),
        setting=setting,
        looks=of_looks,
        replicates=spec.replicates() if is_judged else 1,
        seeds=spec.seeds,
    )


def _is_at_edge(spec: ComparisonSpec, name: str, rates: Sequence[RunGroup]) -> bool:
    """Of any replicate's tuning; where several rates are judged by their own seeds, of the best one."""
    if spec.tuning is None:
        tried = [each for each in rates if each.results()]
        return len(tried) > 1 and _best_trial(tried) in (tried[0], tried[-1])
    facts = [run_fact(run) for rate in rates for run in rate.runs if run.status in TERMINAL]
    return any(
        spec.tuner(name, replicate).is_at_edge(
            mean_losses(run for run in facts if run.seed in spec.replicate_seeds(replicate)[0])
        )
        for replicate in range(spec.replicates())
    )


def _best_trial(rates: Sequence[RunGroup]) -> RunGroup:
    return min(rates, key=lambda each: (each.rank(), each.lr))
