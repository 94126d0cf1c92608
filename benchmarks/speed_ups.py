"""Coverage of the intervals of speed-ups.

    OMP_NUM_THREADS=1 python -m benchmarks.speed_ups --json benchmarks/results/speed-ups.json

Experiments are those of `benchmarks/error_rates.py`: its seeds and its noise (standard deviations of 0.016 nats, and of
0.0035 of one run), its optimizers and how they are tuned and judged, here in a flat basin. A candidate with a speed-up
of r runs down the baseline's own curve r times as fast: it reaches the baseline's final loss after 1 / r of the tokens.
By the share x of the tokens the baseline's loss falls as -0.15 log x ("flattening"), or as -0.5 x ("straight", as at
the end of a schedule that decays). At each evaluation but the last one a run lies off its curve by 0.002 nats more.

Printed for each world, in per cent of experiments: the intervals that hold the truth; those that leave it out below
and above; experiments that claim a speed-up (the interval leaves 1 out), which are all false where the truth is 1;
those that have a figure at all. Then the mean of these figures, and of those alone that claim a speed-up; and the
median width of the intervals of these, as a ratio.
"""

import argparse
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import perf_counter

import numpy as np

from benchmarks.error_rates import Runs, World
from benchmarks.result_file import write_result
from orchestrator.analysis.comparison import ValidationCurve, compare
from orchestrator.kinds.experiment import PlannedRun
from orchestrator.records import Comparison, ExperimentRecord, RunRecord
from tests.factories.comparison import evaluated_on, tuned_records

WIGGLE = 0.002
SPEED_UPS = (1.0, 1.03, 1.05, 1.2, 1.5)
SHAPES = ("flattening", "straight")


@dataclass(frozen=True, kw_only=True)
class Race:
    """A candidate that is so many times as fast as the baseline, and how that is looked at."""

    speed_up: float
    shape: str
    evaluations: int
    seeds: int
    tuning_seeds: int = 0

    def world(self) -> World:
        """Return its losses in the form of the verdicts' benchmark. Without tuning one rate each."""
        return World(basins=("flat", "flat"), seeds=self.seeds, tuning_seeds=self.tuning_seeds)

    def loss(self, share_of_tokens: float) -> float:
        """Return the baseline's loss above that of its end."""
        if self.shape == "flattening":
            return -0.15 * math.log(share_of_tokens)
        return 0.5 * (1 - share_of_tokens)


@dataclass(kw_only=True)
class RaceTally:
    """The results of the experiments of one race."""

    experiments: int = 0
    intervals: int = 0
    above_truth: int = 0
    below_truth: int = 0
    claimed: list[float] = field(default_factory=list)
    figures: list[float] = field(default_factory=list)
    widths: list[float] = field(default_factory=list)

    def add(self, comparison: Comparison, truth: float) -> None:
        """Add the answer of one experiment."""
        self.experiments += 1
        (row,) = (row for row in comparison.rows if not row.is_baseline)
        shown = row.time_to_target.speed_up if row.time_to_target else None
        if shown is None:
            return
        low, high = shown.low or 0.0, math.inf if shown.high is None else shown.high
        self.intervals += 1
        self.above_truth += low > truth
        self.below_truth += high < truth
        if shown.mean is not None:
            self.figures.append(shown.mean)
            if low > 1:
                self.claimed.append(shown.mean)
                self.widths.append(high / low)

    def shares(self) -> dict[str, float | None]:
        """The figures of the table."""
        missed = self.above_truth + self.below_truth
        return {
            "held": share(self.intervals - missed, self.intervals),
            "above_truth": share(self.above_truth, self.intervals),
            "below_truth": share(self.below_truth, self.intervals),
            "claimed": share(len(self.claimed), self.experiments),
            "figures": share(len(self.figures), self.experiments),
            "intervals": share(self.intervals, self.experiments),
            "mean": round(float(np.mean(self.figures)), 4) if self.figures else None,
            "mean_of_claimed": round(float(np.mean(self.claimed)), 4) if self.claimed else None,
            "width": round(float(np.median(self.widths)), 4) if self.widths else None,
        }


def simulate_race(race: Race, experiments: int) -> RaceTally:
    """Simulate so many comparisons of a candidate with the baseline."""
    world = race.world()
    tally = RaceTally()
    random = np.random.default_rng([*race.shape.encode(), *(round(100 * number) for number in asdict(race).values()
                                                            if not isinstance(number, str))])  # fmt: skip
    for _ in range(experiments):
        experiment, runs = conduct(world, [0.0, race.loss(race.speed_up)], random)
        curves = {run.id: curve(race, run, random, world.specification().baseline_name()) for run in runs}
        tally.add(compare(experiment, runs, curves), race.speed_up)
    return tally


def conduct(
    world: World, shifts: Sequence[float], random: np.random.Generator
) -> tuple[ExperimentRecord, tuple[RunRecord, ...]]:
    """An experiment of candidates whose losses lie so much above what their basins say; without an error of the
    validation text."""
    spec, runs = evaluated_on(world.specification()), Runs(world, random)

    def loss(run: PlannedRun) -> float:
        index = spec.names().index(run.candidate)
        (final_loss,) = runs.losses(index, {"lr": run.spec.optimizer.lr}, [run.spec.seed])
        return final_loss + shifts[index]

    return tuned_records(spec, loss)


def curve(race: Race, run: RunRecord, random: np.random.Generator, baseline: str) -> ValidationCurve:
    """Return the curve of a run down to its final loss."""
    assert run.result is not None
    assert run.result.final_val_loss is not None
    end, speed = run.result.final_val_loss, 1.0 if run.candidate == baseline else race.speed_up
    shares = [(index + 1) / race.evaluations for index in range(race.evaluations)]
    losses = [
        end + race.loss(speed * progress) - race.loss(speed) + float(random.normal(0, WIGGLE)) for progress in shares
    ]
    return ValidationCurve(steps=tuple(run.steps_total * progress for progress in shares), losses=(*losses[:-1], end))


def share(count: int, total: int) -> float | None:
    """Return the share as results have it."""
    return round(count / total, 4) if total else None


def races() -> Iterator[Race]:
    """Each speed-up, shape, spacing of evaluations and number of seeds; then with tuning."""
    for speed_up in SPEED_UPS:
        for shape in SHAPES:
            for evaluations in (10, 100):
                for seeds in (3, 5, 10):
                    yield Race(speed_up=speed_up, shape=shape, evaluations=evaluations, seeds=seeds)
    for speed_up in SPEED_UPS:
        yield Race(speed_up=speed_up, shape=SHAPES[0], evaluations=100, seeds=5, tuning_seeds=3)


def main(arguments: Sequence[str] | None = None) -> None:
    """Simulate, print, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--experiments", type=int, default=400, help="in each world; half as many with tuning")
    parser.add_argument("--json", type=Path, help="write the result here")
    options = parser.parse_args(arguments)
    begun, raced = perf_counter(), []
    for race in races():
        experiments = options.experiments // 2 if race.tuning_seeds else options.experiments
        figures = simulate_race(race, experiments).shares()
        raced.append(asdict(race) | {"experiments": experiments} | figures)
        print(asdict(race), figures, flush=True)
    print(f"{perf_counter() - begun:.0f} s")
    if options.json:
        write_result(options.json, "speed_ups", {"experiments": options.experiments, "races": raced})


if __name__ == "__main__":
    main()
