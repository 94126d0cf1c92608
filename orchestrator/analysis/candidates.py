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
from orchestrator.design import CandidateDesign, ComparisonDesign
from orchestrator.jobs import TERMINAL
from orchestrator.records import SIGNIFICANCE, Interval, RunRecord
from orchestrator.tuning.ranges import searched_values
from orchestrator.tuning.tuner import RunFact, Setting, mean_losses


@dataclass(frozen=True, kw_only=True)
class SettingRuns:
    """Runs of one candidate at one setting: those of a trial, or the judged ones."""

    lr: float
    """The learning rate; of replicates, whose settings differ, the first one's."""
    runs: tuple[RunFact, ...]
    setting: Setting
    looks: Mapping[int, Look] | None = None
    """The looks, if seeds are added while verdicts are open."""
    replicates: int = 1
    seeds: tuple[int, ...] = ()
    """The seeds of the design, which say whose replicate a run is."""

    @cached_property
    def lost(self) -> frozenset[int]:
        """Return the seeds whose run has ended for good without a loss that counts."""
        return frozenset(run.seed for run in self.runs if run.has_ended() and run.loss is None)

    def losses(self) -> dict[int, float]:
        """Return seed → final loss of the runs that were not lost."""
        return {run.seed: run.loss for run in self.runs if run.loss is not None}

    def units(self) -> dict[int, float]:
        """Return the compared values: losses by seed, or their means by replicate."""
        losses = self.losses()
        if self.replicates == 1:
            return losses
        means: dict[int, list[float]] = defaultdict(list)
        for seed, loss in losses.items():
            means[self.seeds.index(seed) % self.replicates].append(loss)
        return {replicate: fmean(values) for replicate, values in means.items()}

    def val_loss(self) -> Interval | None:
        """Return the mean over what is compared, with its interval."""
        return mean_interval([*self.units().values()], looks=self.looks)

    def rank(self) -> tuple[int, float]:
        """Return a key that sorts the best trial first: the most runs with a loss, since all rates are for the same
        seeds; then the lowest mean."""
        losses = self.losses()
        return -len(losses), fmean(losses.values()) if losses else inf


@dataclass(frozen=True, kw_only=True)
class CandidateSummary:
    """A candidate over all of its runs."""

    candidate: CandidateDesign
    rates: tuple[SettingRuns, ...]
    """Its trials, ascending by rate; of a tuned comparison over the tuning seeds."""
    judging_runs: SettingRuns | None
    """The seeds that judge; None before they are there, and where nothing was tuned."""
    tuned: bool
    is_at_edge: bool
    """Whether the best trial is the lowest or highest rate that was tried."""
    records: Mapping[str, RunRecord]
    """Run id → its record; empty if others trained the runs."""

    @property
    def best_trial(self) -> SettingRuns:
        """Return the best trial."""
        return _best_trial(self.rates)

    @property
    def compared_runs(self) -> SettingRuns:
        """Return the runs that are compared; none before they begin."""
        if self.judging_runs is not None or not self.tuned:
            return self.judging_runs or self.best_trial
        return SettingRuns(lr=self.best_trial.lr, runs=(), setting={})

    def compared_records(self) -> tuple[RunRecord, ...]:
        """Return the records of the runs that are compared."""
        return tuple(self.records[run.id] for run in self.compared_runs.runs if run.id in self.records)

    def runs(self) -> tuple[RunFact, ...]:
        """Return every run of the candidate."""
        trials = tuple(run for rate in self.rates for run in rate.runs)
        return trials if self.judging_runs is None else (*trials, *self.judging_runs.runs)

    def judged(self) -> JudgedRuns:
        """Return the estimator's input."""
        compared = self.compared_runs
        ended = frozenset(run.seed for run in compared.runs if run.has_ended())
        return JudgedRuns(losses=compared.units(), lost=compared.lost, ended=ended, is_at_edge=self.is_at_edge)


def summaries(design: ComparisonDesign, runs: Iterable[RunRecord]) -> tuple[CandidateSummary, ...]:
    """Return every candidate over its runs, in the order of the design."""
    records = {run.id: run for run in runs}
    return summarize_facts(design, map(run_fact, records.values()), records)


def summarize_facts(
    design: ComparisonDesign, runs: Iterable[RunFact], records: Mapping[str, RunRecord] | None = None
) -> tuple[CandidateSummary, ...]:
    """Return every candidate over its runs, in the order of the design. `records`: those of runs of ours, by their
    ids."""
    by_candidate: dict[str, list[RunFact]] = {}
    for run in runs:
        by_candidate.setdefault(run.candidate, []).append(run)
    return tuple(
        _summary(design, candidate, by_candidate.get(candidate.name, []), records or {})
        for candidate in design.candidates
    )


def design_looks(design: ComparisonDesign, comparisons: int = 1) -> Mapping[int, Look] | None:
    """Return the levels of its looks where it adds seeds, for each of so many intervals; None if all run at once."""
    if design.first_seeds is None:
        return None
    return looks(design.first_seeds, len(design.seeds), SIGNIFICANCE / max(comparisons, 1))


def loss_of(run: RunRecord) -> float | None:
    """Return the final loss of a run; None if the run was lost or has no result."""
    return run.result.judged_loss() if run.result else None


def run_fact(run: RunRecord) -> RunFact:
    """Return a run of ours as tuning and analysis take it."""
    return RunFact(
        id=run.id,
        candidate=run.candidate,
        model=run.model,
        steps=run.steps_total,
        lr=run.lr,
        seed=run.seed,
        status=run.status,
        verdict=run.result.verdict if run.result else None,
        loss=loss_of(run),
        step_seconds=run.result.productive_seconds / run.result.steps if run.result and run.result.steps else None,
        is_time_up=run.limit_reached is not None,
    )


def _summary(
    design: ComparisonDesign, candidate: CandidateDesign, runs: Sequence[RunFact], records: Mapping[str, RunRecord]
) -> CandidateSummary:
    levels = design_looks(design)
    trial_runs = [run for run in runs if run.seed not in design.seeds] if design.is_tuned else runs
    judged = [run for run in runs if run.seed in design.seeds] if design.is_tuned else []
    by_rate: dict[float, list[RunFact]] = {lr: [] for lr in candidate.learning_rates}
    for run in trial_runs:
        by_rate.setdefault(run.lr, []).append(run)
    rates = tuple(
        _setting_runs(design, lr, trial, records, None if design.is_tuned else levels)
        for lr, trial in sorted((by_rate or {candidate.own_rate: []}).items())
    )
    return CandidateSummary(
        candidate=candidate,
        rates=rates,
        judging_runs=_setting_runs(design, judged[0].lr, judged, records, levels) if judged else None,
        tuned=design.is_tuned,
        is_at_edge=_is_at_edge(design, candidate, rates),
        records={run.id: records[run.id] for run in runs if run.id in records},
    )


def _setting_runs(
    design: ComparisonDesign,
    lr: float,
    runs: Sequence[RunFact],
    records: Mapping[str, RunRecord],
    levels: Mapping[int, Look] | None,
) -> SettingRuns:
    specs = (records[run.id].spec for run in runs if run.id in records)
    first = next((spec for spec in specs if spec is not None), None)
    is_judged = any(run.seed in design.seeds for run in runs)
    return SettingRuns(
        lr=lr,
        runs=tuple(runs),
        setting=searched_values(first, design.searched) if first is not None else {},
        looks=levels,
        replicates=design.replicates if is_judged else 1,
        seeds=design.seeds,
    )


def _is_at_edge(design: ComparisonDesign, candidate: CandidateDesign, rates: Sequence[SettingRuns]) -> bool:
    """Return whether the best rate is at an edge of any replicate's tuning; if several rates are judged by their own
    seeds, of the best one."""
    if not design.is_tuned:
        tried = [rate for rate in rates if any(run.verdict is not None for run in rate.runs)]
        return len(tried) > 1 and _best_trial(tried) in (tried[0], tried[-1])
    ended = [run for rate in rates for run in rate.runs if run.status in TERMINAL]
    return any(
        tuner.is_at_edge(
            mean_losses(run for run in ended if run.seed in design.tuning_seeds[replicate :: design.replicates])
        )
        for replicate, tuner in enumerate(candidate.tuners)
    )


def _best_trial(rates: Sequence[SettingRuns]) -> SettingRuns:
    return min(rates, key=lambda rate: (rate.rank(), rate.lr))
