"""How often verdicts are wrong where tuning searches several hyperparameters: optimizers whose true losses are known.

    OMP_NUM_THREADS=1 python -m benchmarks.searched_verdicts --method random --json found.json

Each experiment draws, plans and judges with the product's own functions: `ComparisonSpec.settings`,
`Tuning.next_pairs`, `compare`. A run's loss is

    the sum over the axes of a curvature times the squared distance from the optimum + an effect of its seed + noise

where 1 is the distance from the middle of a prior to its end. The rate costs 0.1 nats at that distance, every other
axis 0.02; where sensitivities are said, so many times that. Optima lie anywhere within 0.6 of the middle: "alike" the
same for both candidates, "near" 0.2 apart at most on each axis, "apart" independent of one another; "outside" they lie
up to a quarter of the range beyond an end of every axis, where the lowest loss is that at the end. With a cliff, runs
diverge at rates 0.15 above the optimum, more or less; "of the baseline", its runs alone. Noise is that of
`benchmarks.verdicts`.

Equal are optimizers whose minima are, and after a random search those whose trials are: what so many draws find is
equal in expectation, over 400 searches by other draws.

Printed for each world, in per cent: experiments in which the equal candidate was called better or worse; intervals that
hold the true differences, all of an experiment together; how often all that are truly better by 0.01 or 0.03 nats were
found to be; then half the width of the interval and the mean of what the best trial lies above its optimizer's
minimum, in thousandths of a nat; and the judged runs of an experiment with equal candidates, which are fewer than twice
the seeds where they are added while it is open (`--sequential`).
"""

import argparse
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Literal

import numpy as np

from benchmarks.result_file import write_result
from benchmarks.verdicts import LOSS, PAIRED_SPREAD, SEED_SPREAD, record
from orchestrator.analysis.comparison import added_runs, compare
from orchestrator.analysis.sequential import Array
from orchestrator.kinds.comparison import Candidate, ComparisonSpec, Sequential
from orchestrator.kinds.experiment import PlannedRun
from orchestrator.kinds.tuning import Tuning, TuningGroup, TuningRun
from orchestrator.records import RunRecord
from orchestrator.tuning.ranges import AXES, FACTORS, FIELDS, Axis, Setting
from tests.factories.comparison import evaluated_on, experiment_record, run_record
from tests.factories.stores import comparison_spec
from worker.records.result import Verdict

RATE, STEPS, WARMUP = 1e-3, 1000, 100
MIDDLES: Mapping[Axis, float] = {
    "lr": RATE, "warmup": WARMUP, "beta1": 0.1, "beta2": 0.05, "weight_decay": 0.1, "clip": 1.0
}  # fmt: skip
"""Of AdamW's priors; of a beta as 1 - beta."""
STEEP, FLAT = 0.1, 0.02
WITHIN = 0.6
GAINS = (0.01, 0.03)
CLIFF = 0.15
SEARCHES = 400
VALLEY, PLATEAU = 20.0, 0.1
Rise = Literal["smooth", "kink", "steep", "unlike", "valley"]


@dataclass(frozen=True, kw_only=True)
class World:
    """What the optimizers are like, and how they are compared."""

    axes: int
    trials: int
    optima: Literal["alike", "near", "apart", "outside"]
    tuning_seeds: int = 3
    seeds: int = 5
    sequential: bool = False
    """Whether seeds are added while a comparison is open, up to `seeds`."""
    method: Literal["random", "coordinate"] = "random"
    together: float = 0.0
    """The share of what axes cost that they cost as one: where one is too large, another had better be too small."""
    rise: Rise = "smooth"
    """How losses rise from the optimum: by the square of the distance; with a kink, by the distance itself; four times
    as steeply to larger values as to smaller ones; with a kink for all but the baseline; or, for all but the baseline,
    in a valley: 20 times as steeply as by the square, up to `PLATEAU`, where every other setting is as bad."""
    cliff: Literal["none", "both", "baseline"] = "none"
    """Whose runs diverge at rates not far above the optimum."""
    sensitivities: tuple[float, float] = (1.0, 1.0)
    """What missing its optimum costs the baseline, and the others, in multiples of the above."""
    others: int = 1
    """How many there are beside the baseline."""

    def names(self) -> tuple[str, ...]:
        """Of the candidates, the baseline first."""
        return ("one", *(f"other {number}" for number in range(self.others)))

    def title(self) -> str:
        """As the table has it."""
        seeds = f"{'up to ' * self.sequential}{self.seeds} seeds"
        title = f"{self.optima}, {self.axes} axes, {self.trials} trials, {seeds}"
        title += f", {self.others + 1} candidates" * (self.others > 1)
        if self.sensitivities != (1.0, 1.0):
            title += ", sensitivities {:g} and {:g}".format(*self.sensitivities)
        if self.method == "coordinate":
            title += ", descent" + f", {self.together:.0%} together" * (self.together > 0)
        title += {"none": "", "both": ", cliff", "baseline": ", cliff of the baseline"}[self.cliff]
        rises_so: dict[Rise, str] = {
            "smooth": "",
            "kink": ", kink",
            "steep": ", one side steep",
            "unlike": ", kink but of the baseline",
            "valley": ", valley but of the baseline",
        }
        return title + rises_so[self.rise]


def specification(world: World, first_seed: int) -> ComparisonSpec:
    """As a user would submit it; the first tuning seed draws the settings."""
    found = evaluated_on(comparison_spec(learning_rates=(RATE,), seeds=range(world.seeds), steps=STEPS))
    schedule = found.workload.schedule.model_copy(update={"warmup_steps": WARMUP})
    workload = found.workload.model_copy(update={"schedule": schedule})
    return found.model_copy(
        update={
            "workload": workload,
            "candidates": tuple(
                Candidate(optimizer="adamw", label=name, learning_rates=(RATE,)) for name in world.names()
            ),
            "sequential": Sequential() if world.sequential else None,
            "tuning": Tuning(
                seeds=tuple(range(first_seed, first_seed + world.tuning_seeds)),
                search=("lr", "beta2", "weight_decay", "warmup", "beta1", "clip")[: world.axes],
                method=world.method,
                trials=world.trials,
            ),
        }
    )


def excess(away: Array, optimum: Array, world: World) -> Array:
    """What losses lie above the lowest one, by how far their settings lie from the optimum [..., axis]. The first axis
    is the rate."""
    costs = np.where(np.arange(optimum.size) == 0, STEEP, FLAT)
    least = _risen(np.clip(optimum, -1.0, 1.0) - optimum, world)
    total = ((_risen(away, world) - least) * costs).sum(axis=-1)
    together = (np.sqrt(costs) * away).sum(axis=-1) ** 2
    if world.rise == "valley":
        return np.asarray(np.minimum(VALLEY * total, PLATEAU))
    return np.asarray((1 - world.together) * total + world.together * together)


def found_by_draws(world: World, optimum: Array, sensitivity: float, falls: bool, random: np.random.Generator) -> float:
    """What the best of as many draws as a random search has lies above the lowest loss, in expectation; settings are
    equally probable everywhere, the first one is in the middle."""
    places = random.uniform(-1.0, 1.0, (SEARCHES, world.trials, optimum.size))
    places[:, 0] = 0.0
    above = sensitivity * excess(places - optimum, optimum, world)
    seen = above + random.normal(0.0, PAIRED_SPREAD / math.sqrt(2 * world.tuning_seeds), above.shape)
    if falls:
        ends = optimum[0] + random.normal(CLIFF, CLIFF / 3, (*above.shape, world.tuning_seeds))
        seen[(places[..., :1] > ends).any(axis=-1)] = math.inf
    return float(np.take_along_axis(above, seen.argmin(axis=1)[:, None], axis=1).mean())


def _place(setting: Setting, axis: Axis) -> float:
    value = setting[FIELDS[axis]]
    assert isinstance(value, int | float)
    return math.log((1 - value if axis in ("beta1", "beta2") else value) / MIDDLES[axis]) / math.log(FACTORS[axis])


def _optimum(world: World, random: np.random.Generator) -> Array:
    if world.optima == "outside":
        return random.choice((-1, 1), world.axes) * random.uniform(1, 1.5, world.axes)
    return random.uniform(-WITHIN, WITHIN, world.axes)


def _risen(by: Array, world: World) -> Array:
    if world.rise == "kink":
        return np.abs(by)
    return by**2 * np.where((world.rise == "steep") & (by > 0), 4.0, 1.0)


def conducted(
    world: World, number: int, gain: float, random: np.random.Generator
) -> tuple[ComparisonSpec, list[RunRecord], list[float]]:
    """One experiment: its specification, all of its runs, planned as the store plans them, and what the setting that
    each optimizer is judged at lies above its minimum."""
    spec = specification(world, 1000 + world.tuning_seeds * number)
    assert spec.tuning is not None
    first_runs = spec.first_runs()
    template = run_record(first_runs[0], 0, LOSS, "e")
    searched = [axis for axis in AXES if axis in spec.tuning.search]
    first = _optimum(world, random)
    reach = 0.2 if world.optima == "near" else 0.0
    optima = {"one": first}
    for name in world.names()[1:]:
        optima[name] = first + random.uniform(-reach, reach, world.axes)
        if world.optima in ("apart", "outside"):
            optima[name] = _optimum(world, random)
    of_baseline: Mapping[Rise, Rise] = {"unlike": "smooth", "valley": "smooth"}
    of_others: Mapping[Rise, Rise] = {"unlike": "kink"}
    kinds = {
        name: replace(world, rise=(of_baseline if name == "one" else of_others).get(world.rise, world.rise))
        for name in optima
    }
    sensitivities = {name: world.sensitivities[name != "one"] for name in optima}
    falls = {name: world.cliff == "both" or (world.cliff == "baseline" and name == "one") for name in optima}
    shifts = {name: -gain if name != "one" else 0.0 for name in optima}
    if world.method == "random":
        expected = {
            name: found_by_draws(kinds[name], optimum, sensitivities[name], falls[name], np.random.default_rng(number))
            for name, optimum in optima.items()
        }
        shifts = {name: shift + expected["one"] - expected[name] for name, shift in shifts.items()}
    effects: dict[int, float] = {}
    records: list[RunRecord] = []

    def train(run: PlannedRun) -> tuple[TuningRun, float]:
        """The run, and what its setting lies above the minimum."""
        name, lr, seed = run.candidate, run.spec.optimizer.lr, run.spec.seed
        effect = effects.setdefault(seed, float(random.normal(0, SEED_SPREAD)))
        noise = float(random.normal(0, PAIRED_SPREAD / math.sqrt(2)))
        setting = spec.searched_parameters(0, run.spec)
        away = np.array([_place(setting, axis) for axis in searched]) - optima[name]
        above = sensitivities[name] * float(excess(away, optima[name], kinds[name]))
        loss = LOSS + above + shifts[name] + effect + noise
        trial = TuningRun(lr=lr, seed=seed, ended=True, verdict=Verdict.CONVERGED, loss=loss)
        if falls[name] and away[0] > float(random.normal(CLIFF, CLIFF / 3)):
            trial = replace(trial, verdict=Verdict.DIVERGED, loss=None)
        records.append(record(template, len(records), name, trial).model_copy(update={"spec": run.spec}))
        return trial, above

    missed = []
    for name in optima:
        group = TuningGroup(candidate=name, model=spec.workload.model, steps=STEPS)
        tried: list[TuningRun] = []
        pending = tuple(run for run in first_runs if run.candidate == name)
        while pending:
            ended = [train(run) for run in pending]
            tried += [trial for trial, _ in ended]
            pending = spec.follow_up_runs(group, tried)
        missed.append(ended[-1][1])
    while added := added_runs(experiment_record(spec, len(records), "e"), records):
        for run in added:
            train(run)
    return spec, records, missed


def simulate(world: World, experiments: int, gain: float, seed: int) -> dict[str, float]:
    """So many experiments whose second candidate is better by `gain`."""
    random = np.random.default_rng([seed, world.axes, world.trials, world.seeds, *world.optima.encode()])
    decided = held = given = 0
    widths: list[float] = []
    missed: list[float] = []
    judged: list[int] = []
    for number in range(experiments):
        spec, records, missed_here = conducted(world, number, gain, random)
        missed += missed_here
        judged.append(sum(run.seed in spec.seeds for run in records))
        rows = [row for row in compare(experiment_record(spec, len(records), "e"), records).rows if not row.is_baseline]
        told = ("better", "worse") if gain == 0 else ("better",)
        decided += (any if gain == 0 else all)(row.conclusion.value in told for row in rows)
        intervals = [row.difference.bounds() for row in rows if row.difference]
        intervals = [bounds for bounds in intervals if bounds != (-math.inf, math.inf)]
        held += bool(intervals) and all(low <= -gain <= high for low, high in intervals)
        given += bool(intervals)
        widths += [(high - low) / 2 for low, high in intervals if math.isfinite(high - low)]
    known = {"held": held / given} if given else {}
    known |= {"half_width": float(np.median(widths))} if widths else {}
    return known | {
        "decided": decided / experiments,
        "without_interval": 1 - given / experiments,
        "missed": float(np.mean(missed)),
        "judged_runs": float(np.mean(judged)),
    }


def worlds(given: argparse.Namespace) -> list[World]:
    """Those that were asked for."""
    optima: tuple[Literal["alike", "near", "apart"], ...] = ("alike", "near", "apart")
    found = [
        World(axes=axes, trials=trials, optima=each, seeds=seeds)
        for each in optima
        for axes, trials, seeds in ((2, 8, 5), (3, 16, 5), (6, 8, 5), (6, 24, 5), (6, 24, 10))
    ]
    methods: tuple[tuple[Literal["random", "coordinate"], int, int], ...] = (
        ("random", 3, 16),
        ("random", 6, 24),
        ("coordinate", 3, 16),
        ("coordinate", 6, 16),
        ("coordinate", 6, 24),
    )
    found += [
        World(axes=axes, trials=trials, optima=each, sensitivities=sensitivities, method=method)
        for method, axes, trials in methods
        for each in optima
        for sensitivities in ((0.05, 1.0), (1.0, 5.0))
    ]
    found += [
        World(axes=axes, trials=trials, optima=each, seeds=seeds, method="coordinate", **kind)
        for each in optima
        for axes, trials, seeds, kind in (
            (2, 8, 5, {}),
            (6, 16, 5, {}),
            (6, 24, 5, {}),
            (6, 24, 10, {}),
            (3, 16, 10, {"together": 0.8}),
            (6, 24, 10, {"rise": "kink"}),
        )
    ]
    found += [
        World(
            axes=axes, trials=trials, optima=each, seeds=10, sequential=True, method=method, sensitivities=sensitivities
        )
        for method, axes, trials in methods
        if (axes, trials) != (6, 16)
        for each in optima
        for sensitivities in ((1.0, 1.0), (1.0, 5.0))
    ]
    found += [
        World(axes=axes, trials=trials, optima=each, others=others, sensitivities=sensitivities)
        for axes, trials in ((3, 16), (6, 24))
        for each in ("near", "apart")
        for others in (4, 9)
        for sensitivities in ((1.0, 1.0), (1.0, 5.0), (5.0, 1.0))
    ]
    rises: tuple[Rise, ...] = ("kink", "steep")
    found += [
        World(axes=axes, trials=trials, optima=each, rise=rise, sensitivities=sensitivities, method=method)
        for rise in rises
        for method, axes, trials in methods
        if (axes, trials) != (6, 16)
        for each in ("near", "apart")
        for sensitivities in ((1.0, 1.0), (1.0, 5.0))
    ]
    ends: tuple[Literal["apart", "outside"], ...] = ("apart", "outside")
    found += [
        World(axes=axes, trials=trials, optima=each, together=0.9, sensitivities=sensitivities, method="coordinate")
        for axes, trials in ((3, 16), (6, 16), (6, 24))
        for each in ("near", "apart")
        for sensitivities in ((1.0, 1.0), (1.0, 5.0))
    ]
    found += [
        World(axes=axes, trials=trials, optima=each, cliff="both" if each == "apart" else "none", method=method)
        for method, axes, trials in methods
        if (axes, trials) != (6, 16)
        for each in ends
    ]
    near: Sequence[Literal["near", "apart"]] = ("near", "apart")
    few: tuple[tuple[Literal["random", "coordinate"], int, int], ...] = (
        ("coordinate", 2, 8),
        ("coordinate", 3, 10),
        ("coordinate", 6, 16),
        ("coordinate", 6, 24),
        ("random", 3, 16),
        ("random", 6, 24),
    )
    unlike = [
        World(axes=axes, trials=trials, optima=each, rise="kink", sensitivities=(1.0, 5.0), method=method, others=many)
        for many in (1, 9)
        for method, axes, trials in few
        for each in near[: 2 if many == 1 else 1]
    ]
    unlike += [
        World(axes=axes, trials=trials, optima=each, rise="unlike", method=method)
        for method, axes, trials in methods
        for each in near
        if (axes, trials) != (6, 16)
    ]
    unlike += [
        World(axes=axes, trials=trials, optima="near", cliff="baseline", method=method)
        for method, axes, trials in methods
        if (axes, trials) != (6, 16)
    ]
    of_one_axis: tuple[tuple[Literal["random"], int, int], ...] = (("random", 1, 4), ("random", 1, 8))
    valleys = [
        World(axes=axes, trials=trials, optima=each, rise="valley", method=method)
        for method, axes, trials in (*of_one_axis, *methods)
        for each in near
        if (axes, trials) != (6, 16)
    ]
    few_trials: tuple[tuple[int, int, int, Literal["smooth", "kink"], Literal["none", "both"]], ...] = (
        *((axes, trials, 1, rise, "none") for rise in ("smooth", "kink") for axes in (1, 3) for trials in (3, 4, 5)),
        *((axes, 7, 9, rise, "none") for rise in ("smooth", "kink") for axes in (1, 3)),
        *((axes, trials, 1, "smooth", "both") for axes, trials in ((1, 4), (3, 4), (3, 5), (3, 8), (3, 16))),
        (3, 8, 9, "smooth", "both"),
    )
    few_trained = [
        World(axes=axes, trials=trials, optima="apart", sensitivities=(1.0, 5.0), others=others, rise=rise, cliff=cliff)
        for axes, trials, others, rise, cliff in few_trials
    ]
    found = few_trained if given.few else valleys if given.rise == "valley" else unlike if given.unlike else found
    found = [each for each in found if each.cliff != "none" or each.optima == "outside" or not given.ends]
    found = [each for each in found if given.method in (None, each.method)]
    found = [each for each in found if each.others > 1 or not given.several]
    found = [each for each in found if given.rise in (None, each.rise)]
    found = [each for each in found if each.sequential or not given.sequential]
    return [each for each in found if len({*each.sensitivities}) > 1 or not given.unequal]


def main() -> None:
    """Simulate, print, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--experiments", type=int, default=200, help="in each world")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--method", choices=("random", "coordinate"), help="that one alone")
    parser.add_argument("--sequential", action="store_true", help="the worlds whose seeds are added alone")
    parser.add_argument("--unequal", action="store_true", help="the worlds of unequal sensitivities alone")
    parser.add_argument("--several", action="store_true", help="the worlds of more than two candidates alone")
    parser.add_argument("--rise", choices=("kink", "steep", "valley"), help="the worlds where losses rise so alone")
    parser.add_argument("--unlike", action="store_true", help="the worlds of optimizers that are least alike, alone")
    parser.add_argument("--few", action="store_true", help="the worlds of few trials, or few that are trained, alone")
    parser.add_argument("--ends", action="store_true", help="the worlds of cliffs, and of optima outside, alone")
    parser.add_argument("--json", type=Path, help="write the result here")
    given = parser.parse_args()
    begun, found = perf_counter(), []
    heads = ("false", "held", *(f"found {gain:g}" for gain in GAINS), "half width", "missed", "judged")
    print(f"{'world':80}" + "".join(f"{head:>12}" for head in heads), flush=True)
    for world in worlds(given):
        equal = simulate(world, given.experiments, 0.0, given.seed)
        power = [simulate(world, given.experiments // 4, gain, given.seed)["decided"] for gain in GAINS]
        shares = [equal["decided"], equal.get("held", math.nan), *power]
        found.append(asdict(world) | {"false": equal["decided"], "power": power} | equal)
        cells = [*(100 * share for share in shares), 1000 * equal.get("half_width", math.nan), 1000 * equal["missed"]]
        cells.append(equal["judged_runs"])
        print(f"{world.title():80}" + "".join(f"{cell:12.1f}" for cell in cells), flush=True)
    print(f"{perf_counter() - begun:.0f} s")
    if given.json:
        write_result(given.json, "searched_verdicts", {"experiments": given.experiments, "worlds": found})


if __name__ == "__main__":
    main()
