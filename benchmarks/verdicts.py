"""How often the verdicts of comparisons are wrong: optimizers whose true losses are known, through both phases.

    OMP_NUM_THREADS=1 python -m benchmarks.verdicts --json benchmarks/results/verdicts.json

Each experiment goes through the product's own functions: `Tuning.next_pairs` plans the runs, as the store does when
runs end, and `compare` answers. A run's loss is

    basin(log2 of its rate by the best one) + an effect of its seed, which all candidates share + noise of its own

Basins: flat (a factor of two off the best rate costs 0.003 nats), steep (0.05), mixed (every other candidate's is the
other), skew (an exponential less its tangent), kink (0.05 nats for a factor of two below the best rate, 0.1 above it),
wall (0.02 and 0.4), edge (the optimum lies up to two steps beyond the grid), cliff (falls towards a rate above which
every run diverges, by 0.01 nats for a factor of two unless the line says otherwise) and chance (the same, where runs
diverge by chance about that rate: what is compared is the loss at the rate at which 5 % of them do, for nobody trains
where every second run is lost) and spiking (the same, but these runs end 0.05 to 0.5 nats too high, and the loss falls
no further). "Flat and": the baseline's basin is flat, and the others' that. Grids have factors of 2, 4 or 10. Each
candidate's best rate lies anywhere between two rates of its grid: what is compared is the lowest point of the basins,
and a grid that has missed it is no excuse. "Untuned": every seed at every rate, and no phase of its own for the choice.
Seeds have a standard deviation of 0.016 nats, paired differences of 0.005; noise is normal, Student's t with 3 degrees
of freedom, or log-normal, all of one variance, with a line's own spread where it names one ("normal and": the
baseline's is normal, and the others' that); with spikes 15, 30 or 45 % of the runs end 0.05 to 0.5 nats too high, of
all candidates, of all but the baseline ("spikes of one"), or of the baseline. "Without unit": the same losses times so
much, of a task whose losses are no nats, without a margin. "In logs": the losses are e to so many times what they lie
above 3.3 nats, so that noise grows with them.

Printed for each world, in per cent: the experiments in which any of the equal candidates was called better or worse,
those in which one was with p < 0.01, and those in which one was called unstable; the intervals that hold the true
difference; how often a candidate that is truly better by 0.01 nats was found to be, how often an equal one was called
as good within 0.01 nats, and one that is off by exactly 0.01 too; then half the width of the interval in thousandths of
a nat, the runs of an experiment, and in how many of those of equal candidates a run was called a spike that was none.
"""

import argparse
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from time import perf_counter

import numpy as np

from benchmarks.result_file import write_result
from orchestrator.analysis.comparison import compare
from orchestrator.analysis.sequential import Array
from orchestrator.kinds.comparison import Candidate, ComparisonSpec
from orchestrator.kinds.tuning import Tuning, TuningRun
from orchestrator.records import CandidateRow, RunRecord
from tests.factories.comparison import evaluated_on, experiment_record, run_record
from tests.factories.stores import comparison_spec, result
from worker.records.result import Verdict
from worker.spec.run import Workload
from worker.spec.task import RegressionTask

SEED_SPREAD = 0.016
PAIRED_SPREAD = 0.005
FLAT, STEEP, WALL = 0.003, 0.05, 0.02
BEST = 1e-3
"""About this rate every grid lies, by factors of two."""
LOSS = 3.3
GAIN = 0.01
"""How much better the better one is, and the margin of equivalence."""
SURE = 0.01
"""The p-value below which a false verdict is counted by itself, too."""
CHANCE_WIDTH = 0.1
"""Where runs diverge by chance: the odds rise by e with each tenth of a factor of two."""
CHANCE = 0.05
"""The share of runs that diverge at the rate whose loss counts there."""


@dataclass(frozen=True, kw_only=True)
class World:
    """What the optimizers are like, and how they are compared."""

    basin: str = "flat"
    unlike: bool = False
    """Whether that is the others' basin, and the baseline's is flat."""
    slope: float = 0.01
    """Nats for a factor of two, towards a cliff."""
    noise: str = "normal"
    unlike_noise: bool = False
    """Whether that is the others' noise, and the baseline's is normal."""
    spikes: str = ""
    spike_share: float = 0.15
    paired_spread: float = PAIRED_SPREAD
    candidates: int = 2
    tuning_seeds: int = 3
    seeds: int = 5
    rates: int = 5
    factor: int = 2
    """Between neighbouring rates of the grid."""
    unit: float | None = None
    """Losses have none, and are so many times as large as those in nats."""
    scale: float = 0.0
    """Losses are e to so many times what they lie above `LOSS`."""

    def name(self) -> str:
        """As the table has it."""
        basin = f"{self.basin} {self.slope}" if self.basin in ("cliff", "chance", "spiking") else self.basin
        spread = f", spread {self.paired_spread:g}" if self.paired_spread != PAIRED_SPREAD else ""
        spikes = f", {self.spike_share:.0%} spikes of {self.spikes}" if self.spikes else ""
        noise = f"{'normal and ' if self.unlike_noise else ''}{self.noise}"
        unit = "" if self.unit is None else f", without unit × {self.unit:g}"
        logs = f", in logs × {self.scale:g}" if self.scale else ""
        return f"{'flat and ' if self.unlike else ''}{basin}, {noise}{spread}{spikes}{unit}{logs}"

    def difference(self, shift: float) -> float:
        """Of the expected losses at the best rates of two that differ by so much in nats."""
        if self.scale:
            variance = SEED_SPREAD**2 + self.paired_spread**2 / 2
            shift = math.exp(self.scale**2 * variance / 2) * math.expm1(self.scale * shift)
        return shift * (self.unit or 1.0)


def share(count: int, of: int) -> float | None:
    """As results have it."""
    return round(count / of, 4) if of else None


@dataclass(kw_only=True)
class Tally:
    """What became of one world's experiments."""

    experiments: int = 0
    false: int = 0
    surely_false: int = 0
    """Of these, at `SURE`."""
    unstable: int = 0
    held: int = 0
    intervals: int = 0
    better: int = 0
    better_of: int = 0
    as_good: int = 0
    as_good_of: int = 0
    falsely_as_good: int = 0
    falsely_as_good_of: int = 0
    half_widths: list[float] = field(default_factory=list)
    runs: int = 0
    falsely_spiked: int = 0

    def shares(self) -> dict[str, float | None]:
        """The figures of the table."""
        return {
            "false_verdicts": share(self.false, self.experiments),
            "false_below_0.01": share(self.surely_false, self.experiments),
            "unstable": share(self.unstable, self.experiments),
            "coverage": share(self.held, self.intervals),
            "power": share(self.better, self.better_of),
            "as_good": share(self.as_good, self.as_good_of),
            "falsely_as_good": share(self.falsely_as_good, self.falsely_as_good_of),
            "half_width": round(float(np.median(self.half_widths)), 5) if self.half_widths else None,
            "runs": round(self.runs / self.experiments, 1) if self.experiments else None,
            "falsely_spiked": share(self.falsely_spiked, self.experiments),
        }


@dataclass(kw_only=True)
class Optimizer:
    """One candidate's truth in one experiment."""

    basin: str
    curvature: float
    slope: float
    """Towards a cliff."""
    best: float
    """In factors of two from `BEST`."""
    shift: float
    """Added to every loss."""
    spike_share: float
    """Of its runs."""
    noise: str = "normal"

    def loss(self, rate: float) -> float | None:
        """Above that of the best rate; None where every run diverges."""
        x = math.log2(rate / BEST) - self.best
        if self.basin == "cliff":
            return None if x > 0 else -self.slope * x
        if self.basin == "chance":
            return -self.slope * x
        if self.basin == "spiking":
            return max(-self.slope * x, 0.0)
        if self.basin == "kink":
            return STEEP * max(-x, 2 * x)
        if self.basin == "wall":
            return WALL * max(-x, 20 * x)
        if self.basin == "skew":
            return self.curvature * 2 / 0.49 * (math.exp(0.7 * x) - 1 - 0.7 * x)
        return self.curvature * x * x

    def risk(self, rate: float) -> float:
        """That a run diverges, or spikes, by chance at this rate."""
        if self.basin not in ("chance", "spiking"):
            return 0.0
        x = math.log2(rate / BEST) - self.best
        return 1 / (1 + (1 / CHANCE - 1) * math.exp(-min(max(x / CHANCE_WIDTH, -50), 50)))


def noise(kind: str, random: np.random.Generator, size: int, paired_spread: float = PAIRED_SPREAD) -> Array:
    """Of single runs, so that differences of two vary by `paired_spread`."""
    match kind:
        case "t3":
            unit = random.standard_t(3, size) / math.sqrt(3)
        case "log-normal":
            unit = random.lognormal(0, 0.75, size)
            unit = (unit - math.exp(0.75**2 / 2)) / math.sqrt((math.exp(0.75**2) - 1) * math.exp(0.75**2))
        case _:
            unit = random.standard_normal(size)
    return unit * paired_spread / math.sqrt(2)


class Runs:
    """Losses of one experiment's runs."""

    def __init__(self, world: World, random: np.random.Generator) -> None:
        self._random = random
        self._noise: dict[str, Iterator[float]] = {}
        self._world = world
        self._seeds: dict[int, float] = {}

    def loss(self, optimizer: Optimizer, rate: float, seed: int) -> float | None:
        """How a run ends; None where it diverges."""
        level = optimizer.loss(rate)
        if level is None:
            return None
        is_lost = self._random.random() < optimizer.risk(rate)
        if is_lost and optimizer.basin == "chance":
            return None
        if seed not in self._seeds:
            self._seeds[seed] = float(self._random.normal(0, SEED_SPREAD))
        own = next(self._noise.get(optimizer.noise, iter(())), None)
        if own is None:
            more = noise(optimizer.noise, self._random, 64, self._world.paired_spread).tolist()
            self._noise[optimizer.noise] = iter(more)
            own = next(self._noise[optimizer.noise])
        if self._random.random() < optimizer.spike_share or is_lost:
            own += math.exp(self._random.uniform(math.log(0.05), math.log(0.5)))
        above, scale = level + optimizer.shift + self._seeds[seed] + own, self._world.scale
        return (math.exp(scale * above) if scale else LOSS + above) * (self._world.unit or 1.0)


def optimizers(world: World, shifts: list[float], random: np.random.Generator) -> list[Optimizer]:
    """The candidates of one experiment, the baseline first."""
    found = []
    for place, shift in enumerate(shifts):
        basin = "flat" if world.unlike and place == 0 else world.basin
        steep = basin == "steep" or (basin == "mixed" and place % 2 == 1)
        beyond = world.rates // 2
        towards = dict.fromkeys(("cliff", "chance", "spiking"), (0, beyond))
        low, high = ({"edge": (beyond, beyond + 2)} | towards).get(basin, (-1, 1))
        best = float(random.uniform(low, high)) * math.log2(world.factor)
        found.append(
            Optimizer(
                basin=basin,
                curvature=STEEP if steep else FLAT if basin in ("flat", "mixed") else 0.02,
                slope=world.slope,
                best=best if world.rates > 1 or world.tuning_seeds else 0.0,  # untuned: or they would not be equal
                shift=shift,
                spike_share=world.spike_share if place in SPIKING.get(world.spikes, ()) else 0.0,
                noise="normal" if world.unlike_noise and place == 0 else world.noise,
            )
        )
    return found


SPIKING = {"all": range(99), "one": range(1, 99), "baseline": range(1)}
"""Whose runs spike, by their places among the candidates."""
NAMES = ("adamw", "adapm", "adapm-mini", "lion", "muon", "adafactor", "sgd", "adam-mini", "galore", "apollo")


def specification(world: World) -> ComparisonSpec:
    """As a user would submit it. Losses have no error of their validation text here, and what verdicts add for one is
    next to nothing."""
    rates = tuple(
        float(f"{BEST * float(world.factor) ** (place - world.rates // 2):.6g}") for place in range(world.rates)
    )
    found = evaluated_on(comparison_spec(optimizers=("adamw",), learning_rates=rates, seeds=range(world.seeds)))
    workload = found.workload
    if world.unit is not None:
        workload = Workload(task=RegressionTask(), model="linear", budget=found.workload.budget)
    return found.model_copy(
        update={
            "candidates": tuple(
                Candidate(optimizer="adamw", label=name, learning_rates=rates) for name in NAMES[: world.candidates]
            ),
            "workload": workload,
            "tuning": Tuning(seeds=tuple(range(100, 100 + world.tuning_seeds))) if world.tuning_seeds else None,
        }
    )


def ended_run(lr: float, seed: int, loss: float | None) -> TuningRun:
    """As tuning knows it; without a loss it diverged."""
    verdict = Verdict.DIVERGED if loss is None else Verdict.CONVERGED
    return TuningRun(lr=lr, seed=seed, ended=True, verdict=verdict, loss=loss)


def tuned(spec: ComparisonSpec, candidate: Candidate, truth: Optimizer, runs: Runs) -> list[TuningRun]:
    """All runs of a candidate, planned as the store plans them."""
    trials: list[TuningRun] = []
    first = spec.tuning.seeds if spec.tuning else spec.seeds
    pending = tuple((lr, seed) for seed in first for lr in candidate.learning_rates)
    while pending:
        trials += [ended_run(lr, seed, runs.loss(truth, lr, seed)) for lr, seed in pending]
        pending = (
            spec.tuning.next_pairs(candidate.learning_rates, spec.seeds, trials, least_open=spec.least_open())
            if spec.tuning
            else ()
        )
    return trials


CONVERGED = result(final_val_loss=LOSS)
DIVERGED = result(final_val_loss=None, verdict=Verdict.DIVERGED)


def record(template: RunRecord, position: int, candidate: str, trial: TuningRun) -> RunRecord:
    """A run that has ended."""
    ended = DIVERGED if trial.loss is None else CONVERGED.model_copy(update={"final_val_loss": trial.loss})
    return template.model_copy(
        update={"id": f"r{position}", "candidate": candidate, "lr": trial.lr, "seed": trial.seed, "result": ended}
    )


def conducted(spec: ComparisonSpec, truths: Sequence[Optimizer], runs: Runs, template: RunRecord) -> list[RunRecord]:
    """All runs of one experiment."""
    ended = [
        (candidate.name(), trial)
        for candidate, truth in zip(spec.candidates, truths, strict=True)
        for trial in tuned(spec, candidate, truth, runs)
    ]
    return [record(template, place, *each) for place, each in enumerate(ended)]


def simulate(world: World, experiments: int, seed: int = 0) -> Tally:
    """So many experiments of equal candidates, and as many, of half the size, whose second is better by `GAIN` and
    whose third, where there is one, is worse by it."""
    tally, spec = Tally(), specification(world)
    template = run_record(spec.first_runs()[0], 0, LOSS, "e")
    equal = [0.0] * world.candidates
    for count, shifts in ((experiments, equal), (experiments // 2, [0.0, -GAIN, GAIN, *equal][: world.candidates])):
        design = (world.candidates, world.tuning_seeds, world.seeds, world.rates, world.factor)
        name = replace(world, unit=None).name()  # the same losses in any unit
        random = np.random.default_rng([seed, shifts is equal, *name.encode(), *design])
        for _ in range(count):
            truths, runs = optimizers(world, shifts, random), Runs(world, random)
            records = conducted(spec, truths, runs, template)
            rows = {row.candidate: row for row in compare(experiment_record(spec, len(records), "e"), records).rows}
            said = [(rows[name], shift) for name, shift in zip(NAMES, shifts, strict=False)][1:]
            words = [(row.conclusion.value, shift) for row, shift in said]
            for row, shift in said:
                low, high = (-math.inf, math.inf) if row.difference is None else row.difference.bounds()
                if (low, high) == (-math.inf, math.inf):
                    continue
                tally.intervals += 1
                tally.held += low <= world.difference(shift) <= high
                if math.isfinite(high - low):
                    tally.half_widths.append((high - low) / 2 / (world.unit or 1.0))
            if shifts is equal:
                tally.experiments += 1
                tally.falsely_spiked += not (world.spikes or world.basin == "spiking") and any(
                    map(_has_spike, rows.values())
                )
                tally.runs += len(records)
                tally.false += any(word in ("better", "worse") for word, _ in words)
                tally.surely_false += any(_is_sure(row) for row, _ in said)
                tally.unstable += any(word in ("unstable", "not_compared") for word, _ in words)
                tally.as_good += sum(word == "as_good" for word, _ in words)
                tally.as_good_of += len(words)
            else:
                tally.better += sum(word == "better" for word, shift in words if shift < 0)
                tally.better_of += sum(shift < 0 for _, shift in words)
                tally.falsely_as_good += sum(word == "as_good" for word, shift in words if shift)
                tally.falsely_as_good_of += sum(shift != 0 for _, shift in words)
    return tally


def _is_sure(row: CandidateRow) -> bool:
    found = row.difference
    return found is not None and found.decides() and found.p_value is not None and found.p_value < SURE


def _has_spike(row: CandidateRow) -> bool:
    """Whether a run of its grid is called so, or a judged one of its own or the baseline's."""
    judged = row.difference is not None and row.difference.spiked + row.difference.baseline_spiked > 0
    return judged or any(rate.spiked_seeds for rate in row.learning_rates)


def worlds() -> Iterator[World]:
    """What the table has: each basin, each noise, seeds, candidates, and designs."""
    usual = World()
    for basin in ("flat", "steep", "mixed", "skew", "edge", "cliff"):
        for seeds in (3, 5, 10):
            yield replace(usual, basin=basin, seeds=seeds)
    for noise_kind in ("t3", "log-normal"):
        for basin in ("flat", "steep"):
            for seeds in (3, 5, 10):
                yield replace(usual, basin=basin, noise=noise_kind, seeds=seeds)
    for spikes in ("all", "one", "baseline"):
        for share in (0.15, 0.3, 0.45):
            for seeds in (3, 5, 10):
                yield replace(usual, spikes=spikes, spike_share=share, seeds=seeds)
    for spread in (0.02, 0.05, 0.1, 0.2):
        for noise_kind in ("normal", "t3"):
            for seeds in (3, 5, 10):
                yield replace(usual, basin="mixed", noise=noise_kind, paired_spread=spread, seeds=seeds)
    for candidates in (4, 10):
        for seeds in (3, 7):
            yield replace(usual, basin="mixed", candidates=candidates, seeds=seeds)
    for other in (1, 2, 5):
        for basin in ("flat", "mixed"):
            yield replace(usual, basin=basin, tuning_seeds=other, seeds=10)
    for rates in (3, 7):
        yield replace(usual, basin="mixed", rates=rates, seeds=10)
    for basin in ("kink", "chance"):
        for seeds in (3, 5, 10):
            yield replace(usual, basin=basin, seeds=seeds)
    for factor in (4, 10):
        for basin in ("flat", "steep", "mixed", "skew", "kink", "cliff", "chance", "edge"):
            yield replace(usual, basin=basin, factor=factor, seeds=10)
    for factor in (2, 4, 10):
        for basin in ("flat", "steep", "mixed", "skew", "kink", "cliff", "edge"):
            yield replace(usual, basin=basin, factor=factor, seeds=5, tuning_seeds=0)
    for basin in ("flat", "mixed", "skew", "kink"):
        for seeds in (3, 10):
            yield replace(usual, basin=basin, seeds=seeds, tuning_seeds=0)
    for candidates in (4, 10):
        yield replace(usual, basin="mixed", candidates=candidates, seeds=5, tuning_seeds=0)
    unlike = replace(usual, unlike=True)
    for seeds in (5, 10):
        for basin in ("steep", "skew", "kink", "wall"):
            yield replace(unlike, basin=basin, seeds=seeds)
        for basin in ("cliff", "chance"):
            for slope in (0.01, 0.02, 0.05):
                yield replace(unlike, basin=basin, slope=slope, seeds=seeds)
    for basin in ("kink", "wall"):
        for factor in (4, 10):
            yield replace(unlike, basin=basin, factor=factor, seeds=10)
        yield replace(unlike, basin=basin, tuning_seeds=1, seeds=10)
        yield replace(unlike, basin=basin, candidates=10, seeds=10)
    for seeds in (3, 5, 10):
        skewed = replace(usual, noise="log-normal", unlike_noise=True, seeds=seeds)
        yield skewed
        yield replace(skewed, tuning_seeds=0, rates=1)
    for unit in (1e-3, 1.0, 1e3):
        yield replace(usual, basin="steep", factor=4, seeds=10, unit=unit)
    for scale in (10.0, 30.0, 100.0):
        for basin in ("flat", "steep", "edge"):
            for tuning_seeds in (3, 0):
                yield replace(usual, basin=basin, tuning_seeds=tuning_seeds, unit=1.0, scale=scale)
    for factor in (2, 4):
        for slope in (0.01, 0.02, 0.05):
            yield replace(usual, basin="spiking", slope=slope, factor=factor, seeds=10)


def main() -> None:
    """Simulate, print, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--experiments", type=int, default=300, help="of equal candidates in each world")
    parser.add_argument("--basin", help="this one alone")
    parser.add_argument("--spikes", action="store_true", help="only the worlds with spikes")
    parser.add_argument("--unlike", action="store_true", help="only the worlds whose baseline has another basin")
    parser.add_argument("--unlike-noise", action="store_true", help="only the worlds whose baseline has other noise")
    parser.add_argument("--units", action="store_true", help="only the worlds whose losses have no unit")
    parser.add_argument("--candidates", type=int, help="only the worlds with so many")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="write the result here")
    given = parser.parse_args()
    begun, found = perf_counter(), []
    heads = (
        "false",
        "p < 0.01",
        "unstable",
        "covered",
        "power",
        "as good",
        "falsely so",
        "half width",
        "runs",
        "spiked",
    )
    print(f"{'world':60}" + "".join(f"{head:>11}" for head in heads), flush=True)
    for world in worlds():
        if given.basin and world.basin != given.basin:
            continue
        if (given.spikes and not world.spikes) or (given.unlike and not world.unlike):
            continue
        if given.units and world.unit is None:
            continue
        if given.unlike_noise and not world.unlike_noise:
            continue
        if given.candidates not in (None, world.candidates):
            continue
        shares = simulate(world, max(given.experiments * 2 // world.candidates, 20), given.seed).shares()
        found.append(asdict(world) | shares)
        phase = f"{world.tuning_seeds} tuning seeds" if world.tuning_seeds else "untuned"
        design = f"{world.candidates} × {world.rates} rates × {world.factor}, {phase}, {world.seeds} seeds"
        scale = {"half_width": 1000.0, "runs": 1.0}
        cells = ("–" if value is None else f"{value * scale.get(name, 100.0):.1f}" for name, value in shares.items())
        print(f"{world.name() + ', ' + design:60}" + "".join(f"{cell:>11}" for cell in cells), flush=True)
    print(f"{perf_counter() - begun:.0f} s")
    if given.json:
        write_result(given.json, "verdicts", {"experiments": given.experiments, "worlds": found})


if __name__ == "__main__":
    main()
