"""Simulated comparisons, small: equal optimizers are seldom told apart, and all is as the service would do it."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.error_rates import Runs, World, judged_runs, simulate, verdicts
from benchmarks.sequential import conduct
from benchmarks.sequential import simulate as simulate_looks
from orchestrator.analysis.comparison import compare
from orchestrator.kinds.comparison import Sequential
from orchestrator.kinds.experiment import PlannedRun
from orchestrator.tuning.tuner import Setting, rate_of
from tests.factories.comparison import evaluated_on, experiment_record, tuned_records
from tests.unit.orchestrator.analysis.test_sequential import played

USUAL = World(basins=("flat", "skewed"))


@pytest.mark.parametrize("world", [USUAL, replace(USUAL, run_sd=0.014)])
def test_equal_optimizers_are_seldom_told_apart_and_a_true_difference_is_found(world: World) -> None:
    """Of 150 experiments: false verdicts within three standard errors of 5 %."""
    rates = simulate(world, 150)
    assert rates["false"] <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 150)
    assert rates["found_0.01" if world.run_sd < 0.01 else "found_0.02"] >= 0.7
    assert rates["found_0.005"] <= rates["found_0.01"] <= rates["found_0.02"]
    assert rates["falsely_as_good"] <= 0.05
    assert rates["runs"] == 2 * (8 * 3 + 10)


class RememberedRuns(Runs):
    """The same losses whenever they are asked for."""

    def __init__(self, world: World, random: np.random.Generator) -> None:
        super().__init__(world, random)
        self._known: dict[tuple[int, float, int], float] = {}

    def losses(self, index: int, setting: Setting, seeds: Sequence[int]) -> list[float]:
        rate = rate_of(setting)
        for seed in seeds:
            if (index, rate, seed) not in self._known:
                self._known[index, rate, seed] = super().losses(index, setting, [seed])[0]
        return [self._known[index, rate, seed] for seed in seeds]


@pytest.mark.parametrize("number", range(2))
def test_the_verdicts_are_those_of_the_leaderboard(number: int) -> None:
    """The same losses through `compare`, with all that a service stores of runs."""
    world = replace(USUAL, run_sd=0.014)
    spec, runs = evaluated_on(world.specification()), RememberedRuns(world, np.random.default_rng(number))
    judged = [judged_runs(spec, index, runs) for index in range(2)]

    def loss(run: PlannedRun) -> float:
        return runs.losses(spec.names().index(run.candidate), {"lr": run.spec.optimizer.lr}, [run.spec.seed])[0]

    experiment, records = tuned_records(spec, loss)
    rows = {row.candidate: row.conclusion for row in compare(experiment, records).rows}
    assert len(records) == spec.run_count()
    assert verdicts(spec, judged, 0.0) == [rows["candidate-1"]]


def test_replicates_are_judged_by_their_means() -> None:
    world = World(basins=("steep", "steep"), trials=6, tuning_seeds=5, replicates=5)
    judged = judged_runs(world.specification(), 0, Runs(world, np.random.default_rng(0)))
    assert sorted(judged.losses) == [*range(5)]
    assert simulate(world, 2)["runs"] == 2 * 5 * (6 + 2)


def test_replicates_take_the_luck_of_a_search_into_the_interval() -> None:
    """Of optimizers whose best settings lie near one another, one search calls many different, five replicates few."""
    world = replace(USUAL, basins=("near", "near"), method="random", trials=16, tuning_seeds=5, replicates=5)
    assert simulate(world, 100)["false"] <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 100)
    assert simulate(replace(world, replicates=1), 100)["false"] > 0.15


def test_looks_are_as_the_service_takes_them() -> None:
    """Seeds that `added_runs` queues, and the verdicts that it ends with."""
    world = World(basins=("flat", "flat"), tuning_seeds=0, run_sd=0.008)
    spec = evaluated_on(world.specification()).model_copy(update={"sequential": Sequential()})
    counts = set()
    for number in range(6):
        judged = [
            judged_runs(world.specification(), index, Runs(world, np.random.default_rng([number, index])))
            for index in range(2)
        ]
        losses = {name: candidate_runs.losses for name, candidate_runs in zip(spec.names(), judged, strict=True)}
        records = played(spec, losses)
        conclusions, used = conduct(spec, judged)
        rows = compare(experiment_record(spec, len(records)), records).rows
        assert used == len(records)
        assert conclusions == [row.conclusion for row in rows if not row.is_baseline]
        counts.add(used)
    assert len(counts) > 1


def test_looks_save_runs_and_find_as_much() -> None:
    figures = simulate_looks(World(basins=("flat", "flat"), tuning_seeds=0), 40)
    assert figures["sequential"]["runs_0.02"] < 0.7 * figures["at_once"]["runs_0.02"] == 0.7 * 20
    assert figures["sequential"]["found_0.02"] > 0.9
    assert figures["sequential"]["false"] <= 0.15
