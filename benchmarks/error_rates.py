"""Error rates of tuned comparisons' verdicts, and how often they find a true difference, in simulated worlds.

    OMP_NUM_THREADS=1 python -m benchmarks.error_rates --json benchmarks/results/error-rates.json

The product's own code tunes (`ComparisonSpec.tuner`) and judges (`paired_difference`, `conclude`); losses alone are
simulated. With x doublings of the rate from a candidate's best one, a run's loss is

    basin(x) + an effect of its seed, which all candidates share + noise of its own

A candidate's best rate lies within a factor of two of its own, or where `BEST_PLACES` says. Searches
tune the rate, beta2 and weight decay: x is the place in a range from -1 to 1, best within 0.6 of its middle, of both
candidates together (`alike`), within 0.2 of one another (`near`) or anywhere (`apart`). Noise of a run has the standard
deviation 0.0035 nats, or 0.014: comparisons of the stored studies have 0.0078 at the median. Printed, in per cent:
experiments of equal candidates in which any was called better or worse, candidates better by 0.005, 0.01 and 0.02 nats
that were called better, equal ones called as good within 0.01, those off by exactly 0.01 called so, experiments that
lost a judged run; and the runs of an experiment.
"""

import argparse
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean

import numpy as np

from benchmarks.result_file import write_result
from orchestrator.analysis.estimator import JudgedRuns, conclude, paired_difference
from orchestrator.analysis.sequential import Array
from orchestrator.kinds.comparison import Candidate, ComparisonSpec
from orchestrator.kinds.tuning import SEARCHES, Method, Tuning
from orchestrator.records import Conclusion
from orchestrator.tuning.coordinate import position_of
from orchestrator.tuning.ranges import Axis
from orchestrator.tuning.tuner import Setting, Tuner, rate_of
from worker.spec.run import Budget, Workload

OWN_RATE, LOSS, SEED_SD, MARGIN = 1e-3, 3.3, 0.016, 0.01
RUN_SDS, GAINS = (0.0035, 0.014), (0.005, 0.01, 0.02)
COSTS: Mapping[Axis, float] = {"lr": 0.1, "beta2": 0.02, "weight_decay": 0.02}
"""Nats, at the end of a searched range whose middle is best."""
BASINS: Mapping[str, Callable[[float], float]] = {
    "flat": lambda x: 0.003 * x * x,
    "beyond": lambda x: 0.02 * x * x,
    "steep": lambda x: 0.05 * x * x,
    "skewed": lambda x: 0.04 / 0.49 * (math.exp(0.7 * x) - 1 - 0.7 * x),
    "kink": lambda x: 0.05 * max(-x, 2 * x),
    "wall": lambda x: 0.02 * max(-x, 20 * x),
    "cliff": lambda x: math.inf if x > 0 else -0.01 * x,
    "chance": lambda x: -0.01 * x,
}
"""Nats above the lowest point. Above zero, every run on the cliff is lost; by chance 5 % are at zero, with odds that
rise by e each tenth of a doubling."""
BEST_PLACES = {"beyond": (2.0, 4.0), "cliff": (0.0, 2.0), "chance": (0.0, 2.0)}
FIGURES = ("false", *(f"found_{gain:g}" for gain in GAINS), "as_good", "falsely_as_good", "lost")
TEN = (*("skewed", "steep", "flat") * 3, "steep")


@dataclass(frozen=True, kw_only=True)
class World:
    """Simulated candidates, and the comparison between them."""

    basins: tuple[str, ...]
    """The basins of each candidate, the baseline first; of a search, the places of their best settings, twice."""
    run_sd: float = RUN_SDS[0]
    noise: str = "normal"
    noisier: float = 1.0
    """Noise of all but the baseline, in units of the baseline's."""
    method: Method = "line"
    trials: int = 8
    tuning_seeds: int = 3
    """None if each candidate runs at its best rate, which nothing tuned."""
    seeds: int = 10
    replicates: int = 1

    def name(self) -> str:
        """The world in a line of a table."""
        basins = " ".join(dict.fromkeys(self.basins))
        noise = f"sd {self.run_sd:g} {self.noise} x {self.noisier:g}"
        design = f"T={self.trials}, k={self.tuning_seeds}, n={self.seeds}, R={self.replicates}"
        return f"{self.method} {basins}, {noise}, {design}"

    def specification(self) -> ComparisonSpec:
        """The comparison that a user would submit. A search of one replicate is a stored one: it is refused today."""
        tuning = Tuning.model_construct(
            method=self.method, trials=self.trials, seeds=tuple(range(1000, 1000 + self.tuning_seeds)),
            replicates=self.replicates, search=tuple(COSTS) if self.method in SEARCHES else (),
        )  # fmt: skip
        spec = ComparisonSpec(
            name="a simulated comparison",
            workload=Workload(model="gpt2-tiny", budget=Budget(steps=10)),
            candidates=tuple(
                Candidate(optimizer="adamw", label=f"candidate-{index}", learning_rates=(OWN_RATE,))
                for index in range(len(self.basins))
            ),
            seeds=tuple(range(self.seeds)),
            equivalence_margin=MARGIN,
        )
        return spec.model_copy(update={"tuning": tuning}) if self.tuning_seeds else spec


class Runs:
    """The runs of one experiment."""

    def __init__(self, world: World, random: np.random.Generator) -> None:
        self._world, self._random = world, random
        self._seed_effects: dict[int, float] = {}
        self._priors = world.specification().priors("candidate-0") if world.method in SEARCHES else {}
        ranges = [BEST_PLACES.get(basin, (-1.0, 1.0)) for basin in world.basins]
        self._best = [random.uniform(low, high) if world.tuning_seeds else 0.0 for low, high in ranges]
        middle = random.uniform(-0.6, 0.6, len(self._priors))
        gap = {"alike": 0.0, "near": 0.2, "apart": 0.6}.get(world.basins[0], 0.0)
        start = 0.0 if gap > 0.5 else middle
        self._best_setting = [middle, *(start + random.uniform(-gap, gap, len(middle)) for _ in world.basins[1:])]

    def losses(self, index: int, setting: Setting, seeds: Sequence[int]) -> list[float]:
        """Final losses of a candidate at a setting; infinite where a run diverges."""
        world, risk = self._world, 0.0
        if self._priors:
            places = [position_of(setting, axis, prior) for axis, prior in self._priors.items()]
            excess = float(np.square(places - self._best_setting[index]) @ [COSTS[axis] for axis in self._priors])
        else:
            x = math.log2(rate_of(setting) / OWN_RATE) - self._best[index]
            excess = BASINS[world.basins[index]](x)
            risk = 1 / (1 + 19 * math.exp(-max(10 * x, -50.0))) if world.basins[index] == "chance" else 0.0
        sd, losses = world.run_sd * (world.noisier if index else 1.0), []
        for seed, noise in zip(seeds, _noise(world.noise, self._random, len(seeds)).tolist(), strict=True):
            if seed not in self._seed_effects:
                self._seed_effects[seed] = self._random.normal(0, SEED_SD)
            is_lost = risk > 0 and self._random.random() < risk
            losses.append(math.inf if is_lost else LOSS + excess + self._seed_effects[seed] + sd * noise)
        return losses


def _noise(kind: str, random: np.random.Generator, size: int) -> Array:
    """Return noise of mean 0 and variance 1."""
    if kind == "t3":
        return np.asarray(random.standard_t(3, size) / math.sqrt(3))
    if kind == "log-normal":
        variance = math.expm1(0.75**2) * math.exp(0.75**2)
        return np.asarray((random.lognormal(0, 0.75, size) - math.exp(0.75**2 / 2)) / math.sqrt(variance))
    return random.standard_normal(size)


def tune(tuner: Tuner, runs: Runs, index: int, seeds: Sequence[int]) -> dict[float, float]:
    """All trials of a candidate, with their mean losses."""
    tried: dict[float, float] = {}
    while settings := tuner.ask(tried):
        tried |= {rate_of(setting): fmean(runs.losses(index, setting, seeds)) for setting in settings}
    return tried


def judged_runs(spec: ComparisonSpec, index: int, runs: Runs) -> JudgedRuns:
    """A candidate's judged runs, at the settings that its tuning finds."""
    units: dict[int, float] = {}
    lost: set[int] = set()
    is_at_edge = False
    for replicate in range(spec.replicates()):
        tuning_seeds, seeds = spec.replicate_seeds(replicate)
        setting: Setting | None = {"lr": OWN_RATE}
        if spec.tuning is not None:
            tuner = spec.tuner(spec.names()[index], replicate)
            tried = tune(tuner, runs, index, tuning_seeds)
            setting = tuner.setting(tried)
            is_at_edge |= tuner.is_at_edge(tried)
        if setting is None:
            return JudgedRuns(losses={})
        losses = dict(zip(seeds, runs.losses(index, setting, seeds), strict=True))
        finite = {seed: loss for seed, loss in losses.items() if math.isfinite(loss)}
        lost |= losses.keys() - finite.keys()
        if spec.replicates() == 1:
            units = finite
        elif finite:
            units[replicate] = fmean(finite.values())
    return JudgedRuns(losses=units, lost=lost, ended=spec.seeds, is_at_edge=is_at_edge)


def verdicts(spec: ComparisonSpec, judged: Sequence[JudgedRuns], shift: float) -> list[Conclusion]:
    """Return the verdicts on all but the baseline, whose losses were raised by the shift."""
    baseline, conclusions, design = judged[0], [], spec.design()
    for candidate in judged[1:]:
        shifted = replace(candidate, losses={unit: loss + shift for unit, loss in candidate.losses.items()})
        difference = paired_difference(
            shifted.losses, baseline.losses, comparisons=design.comparisons, margin=design.margin
        )
        conclusions.append(conclude(difference, shifted, baseline))
    return conclusions


def simulate(world: World, experiments: int, seed: int = 0) -> dict[str, float]:
    """The figures of a world: shares of its experiments, or of its candidates, and the runs of one experiment."""
    spec = world.specification()
    random = np.random.default_rng([seed, *repr(world).encode()])
    hits: Counter[str] = Counter()
    for _ in range(experiments):
        runs = Runs(world, random)
        judged = [judged_runs(spec, index, runs) for index in range(len(world.basins))]
        equal = verdicts(spec, judged, 0.0)
        hits["false"] += len(equal) * any(verdict in (Conclusion.BETTER, Conclusion.WORSE) for verdict in equal)
        hits["as_good"] += equal.count(Conclusion.AS_GOOD)
        hits["falsely_as_good"] += verdicts(spec, judged, MARGIN).count(Conclusion.AS_GOOD)
        hits["lost"] += len(equal) * any(candidate.lost for candidate in judged)
        for gain in GAINS:
            hits[f"found_{gain:g}"] += verdicts(spec, judged, -gain).count(Conclusion.BETTER)
    count = experiments * spec.design().comparisons
    return {name: round(hits[name] / count, 4) for name in FIGURES} | {"runs": float(spec.run_count())}


def worlds() -> Iterator[World]:
    """Yield the worlds of the table, at both noise levels."""
    unlike = ("flat", "skewed")
    smooth = (("steep", "steep"), ("skewed", "skewed"), unlike, ("beyond", "beyond"))
    hard = (("wall", "wall"), ("cliff", "cliff"), ("flat", "chance"), ("flat", "kink"), ("kink", "kink"))
    for run_sd in RUN_SDS:
        usual = World(basins=unlike, run_sd=run_sd)
        for basins in (*smooth, *hard):
            yield replace(usual, basins=basins)
            yield replace(usual, basins=basins, trials=6, tuning_seeds=5, replicates=5)
        yield replace(usual, basins=TEN, trials=6)
        for noise in ("t3", "log-normal"):
            for noisier in (1.0, 2.0):
                yield replace(usual, noise=noise, noisier=noisier)
        for seeds, tuning_seeds in ((3, 3), (5, 3), (20, 3), (20, 7), (50, 3), (50, 17)):
            yield replace(usual, seeds=seeds, tuning_seeds=tuning_seeds)
        for method in ("random", "coordinate"):
            for best in ("alike", "near", "apart"):
                search = replace(usual, basins=(best, best), method=method)
                yield search
                yield replace(search, tuning_seeds=5, replicates=5)
                yield replace(search, trials=16, tuning_seeds=5, replicates=5)


def main() -> None:
    """Simulate, print, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--experiments", type=int, default=1000, help="in each world")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="write the result here")
    options = parser.parse_args()
    results = []
    print(f"{'':90}" + "".join(f"{name.replace('falsely', 'false'):>14}" for name in (*FIGURES, "runs")), flush=True)
    for world in worlds():
        figures = simulate(world, options.experiments, options.seed)
        results.append(asdict(world) | figures)
        shares = "".join(f"{100 * figures[name]:14.1f}" for name in FIGURES)
        print(f"{world.name():90}{shares}{figures['runs']:14.0f}", flush=True)
    if options.json:
        write_result(options.json, "error_rates", {"experiments": options.experiments, "worlds": results})


if __name__ == "__main__":
    main()
