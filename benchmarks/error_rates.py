"""How often verdicts of tuned comparisons are wrong, and how often they find a true difference, in simulated worlds.

    OMP_NUM_THREADS=1 python -m benchmarks.error_rates --json benchmarks/results/error-rates.json

The product's own code tunes (`ComparisonSpec.tuner`) and judges (`paired_difference`, `conclude`); losses alone are
simulated. With x doublings of the rate from a candidate's best one, a run's loss is

    basin(x) + an effect of its seed, which all candidates share + noise of its own

Basins above their lowest point, in nats:

    flat 0.003 x²    middle 0.02 x²    steep 0.05 x²    skewed 0.082 (exp(0.7 x) - 1 - 0.7 x)
    kink 0.05 max(-x, 2 x)    wall 0.02 max(-x, 20 x)    cliff -0.01 x, and every run diverges above zero
    chance -0.01 x, and runs diverge by chance, 5 % of them at zero, with odds that rise by e each tenth of a doubling

A candidate's best rate lies anywhere within a factor of two of the one that it begins with, or, `beyond`, a factor of
4 to 16 above it. Noise of one run has the standard deviation 0.0035 nats, or 0.014: comparisons of the stored studies
have 0.0078 at the median. Printed, in per cent: experiments of equal candidates in which any was called better
or worse, candidates better by 0.005, 0.01 and 0.02 nats that were called better, equal ones called as good within 0.01
nats, those off by exactly 0.01 called so, experiments that lost a judged run; and the runs of an experiment.
"""

import argparse
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
from time import perf_counter

import numpy as np

from benchmarks.result_file import write_result
from orchestrator.analysis.estimator import JudgedRuns, conclude, paired_difference
from orchestrator.analysis.sequential import Array
from orchestrator.kinds.comparison import Candidate, ComparisonSpec
from orchestrator.kinds.tuning import Tuning
from orchestrator.records import Conclusion
from orchestrator.tuning.tuner import Tuner, best_rate, rate_of
from worker.spec.run import Budget, Workload

OWN_RATE = 1e-3
LOSS = 3.3
SEED_SD = 0.016
RUN_SDS = (0.0035, 0.014)
MARGIN = 0.01
GAINS = (0.005, 0.01, 0.02)
RISK, RISK_WIDTH = 0.05, 0.1
BASINS: Mapping[str, Callable[[float], float]] = {
    "flat": lambda x: 0.003 * x * x,
    "middle": lambda x: 0.02 * x * x,
    "beyond": lambda x: 0.02 * x * x,
    "steep": lambda x: 0.05 * x * x,
    "skewed": lambda x: 0.04 / 0.49 * (math.exp(0.7 * x) - 1 - 0.7 * x),
    "kink": lambda x: 0.05 * max(-x, 2 * x),
    "wall": lambda x: 0.02 * max(-x, 20 * x),
    "cliff": lambda x: math.inf if x > 0 else -0.01 * x,
    "chance": lambda x: -0.01 * x,
}
BEST_PLACES = {"beyond": (2.0, 4.0), "cliff": (0.0, 2.0), "chance": (0.0, 2.0)}
"""Of others within a doubling."""
FIGURES = ("false", *(f"found_{gain:g}" for gain in GAINS), "as_good", "falsely_as_good", "lost")
TEN = (*("skewed", "steep", "flat") * 3, "middle")


@dataclass(frozen=True, kw_only=True)
class World:
    """What the candidates are like, and how they are compared."""

    basins: tuple[str, ...]
    """Of each candidate, the baseline first."""
    run_sd: float = RUN_SDS[0]
    noise: str = "normal"
    noisier: float = 1.0
    """Noise of all but the baseline, in units of the baseline's."""
    trials: int = 8
    tuning_seeds: int = 3
    """None where each candidate runs at its best rate, which nothing tuned."""
    seeds: int = 10
    replicates: int = 1
    judges_best_trial: bool = False
    """Instead of the setting that the line search finds, which is no choice that the product offers."""

    def name(self) -> str:
        """As the table has it."""
        others = "best trials judged, " if self.judges_best_trial else ""
        others += f"{self.noise} noise, " if self.noise != "normal" else ""
        others += f"candidate {self.noisier:g} times as noisy, " if self.noisier != 1 else ""
        others += f"{self.replicates} replicates, " if self.replicates > 1 else ""
        basins = "ten candidates" if self.basins == TEN else " and ".join(dict.fromkeys(self.basins))
        tuning = f"T={self.trials}, k={self.tuning_seeds}" if self.tuning_seeds else "untuned"
        return f"{basins}, {others}sd {self.run_sd:g}, {tuning}, n={self.seeds}"

    def specification(self) -> ComparisonSpec:
        """The comparison that a user would submit."""
        candidates = (
            Candidate(optimizer="adamw", label=f"candidate-{index}", learning_rates=(OWN_RATE,))
            for index in range(len(self.basins))
        )
        tuning_seeds = tuple(range(1000, 1000 + self.tuning_seeds))
        return ComparisonSpec(
            name="a simulated comparison",
            workload=Workload(model="gpt2-tiny", budget=Budget(steps=10)),
            candidates=tuple(candidates),
            seeds=tuple(range(self.seeds)),
            tuning=Tuning(trials=self.trials, seeds=tuning_seeds, replicates=self.replicates) if tuning_seeds else None,
            equivalence_margin=MARGIN,
        )


class Runs:
    """The runs of one experiment."""

    def __init__(self, world: World, random: np.random.Generator) -> None:
        self._world, self._random = world, random
        self._seed_effects: dict[int, float] = {}
        places = [BEST_PLACES.get(basin, (-1.0, 1.0)) for basin in world.basins]
        self._best = [random.uniform(low, high) if world.tuning_seeds else 0.0 for low, high in places]

    def losses(self, index: int, rate: float, seeds: Sequence[int]) -> list[float]:
        """Final losses of a candidate at a rate; infinite where a run diverges."""
        x = math.log2(rate / OWN_RATE) - self._best[index]
        basin = self._world.basins[index]
        risk = 1 / (1 + (1 / RISK - 1) * math.exp(-max(x / RISK_WIDTH, -50.0))) if basin == "chance" else 0.0
        sd = self._world.run_sd * (self._world.noisier if index else 1.0)
        found = []
        for seed, noise in zip(seeds, _noise(self._world.noise, self._random, len(seeds)).tolist(), strict=True):
            if seed not in self._seed_effects:
                self._seed_effects[seed] = self._random.normal(0, SEED_SD)
            is_lost = risk > 0 and self._random.random() < risk
            found.append(math.inf if is_lost else LOSS + BASINS[basin](x) + self._seed_effects[seed] + sd * noise)
        return found


def _noise(kind: str, random: np.random.Generator, size: int) -> Array:
    """Of mean 0 and variance 1."""
    match kind:
        case "t3":
            return np.asarray(random.standard_t(3, size) / math.sqrt(3))
        case "log-normal":
            variance = math.expm1(0.75**2) * math.exp(0.75**2)
            return np.asarray((random.lognormal(0, 0.75, size) - math.exp(0.75**2 / 2)) / math.sqrt(variance))
        case _:
            return random.standard_normal(size)


def tune(tuner: Tuner, runs: Runs, index: int, seeds: Sequence[int]) -> dict[float, float]:
    """All trials of a candidate, with their mean losses."""
    tried: dict[float, float] = {}
    while asked := tuner.ask(tried):
        tried |= {rate: fmean(runs.losses(index, rate, seeds)) for rate in map(rate_of, asked)}
    return tried


def judged_runs(world: World, spec: ComparisonSpec, index: int, runs: Runs) -> JudgedRuns:
    """A candidate's judged runs, at the settings that its tuning finds."""
    units: dict[int, float] = {}
    lost: set[int] = set()
    is_at_edge = False
    for replicate in range(spec.replicates()):
        tuning_seeds, seeds = spec.replicate_seeds(replicate)
        rate: float | None = OWN_RATE
        if spec.tuning is not None:
            tuner = spec.tuner(spec.names()[index], replicate)
            tried = tune(tuner, runs, index, tuning_seeds)
            setting = tuner.setting(tried)
            rate = best_rate(tried) if world.judges_best_trial or setting is None else rate_of(setting)
            is_at_edge |= tuner.is_at_edge(tried)
        if rate is None:
            return JudgedRuns(losses={})
        losses = dict(zip(seeds, runs.losses(index, rate, seeds), strict=True))
        kept = {seed: loss for seed, loss in losses.items() if math.isfinite(loss)}
        lost |= losses.keys() - kept.keys()
        if spec.replicates() == 1:
            units = kept
        elif kept:
            units[replicate] = fmean(kept.values())
    return JudgedRuns(losses=units, lost=lost, ended=spec.seeds, is_at_edge=is_at_edge)


def verdicts(spec: ComparisonSpec, judged: Sequence[JudgedRuns], shift: float) -> list[Conclusion]:
    """On all but the baseline, whose losses are so much higher than they were."""
    baseline, found = judged[0], []
    for each in judged[1:]:
        mine = replace(each, losses={unit: loss + shift for unit, loss in each.losses.items()})
        difference = paired_difference(
            mine.losses, baseline.losses, comparisons=spec.comparison_count(), margin=spec.equivalence()
        )
        found.append(conclude(difference, mine, baseline))
    return found


def simulate(world: World, experiments: int, seed: int = 0) -> dict[str, float]:
    """The figures of a world: shares of its experiments, or of its candidates, and the runs of one experiment."""
    spec = world.specification()
    random = np.random.default_rng([seed, *repr(world).encode()])
    hits: Counter[str] = Counter()
    for _ in range(experiments):
        runs = Runs(world, random)
        judged = [judged_runs(world, spec, index, runs) for index in range(len(world.basins))]
        equal = verdicts(spec, judged, 0.0)
        hits["false"] += len(equal) * any(each in (Conclusion.BETTER, Conclusion.WORSE) for each in equal)
        hits["as_good"] += equal.count(Conclusion.AS_GOOD)
        hits["falsely_as_good"] += verdicts(spec, judged, MARGIN).count(Conclusion.AS_GOOD)
        hits["lost"] += len(equal) * any(each.lost for each in judged)
        for gain in GAINS:
            hits[f"found_{gain:g}"] += verdicts(spec, judged, -gain).count(Conclusion.BETTER)
    of = experiments * spec.comparison_count()
    return {name: round(hits[name] / of, 4) for name in FIGURES} | {"runs": float(spec.run_count())}


def worlds() -> Iterator[World]:
    """Those of the table, at both noise levels."""
    unlike = ("flat", "skewed")
    for run_sd in RUN_SDS:
        usual = World(basins=unlike, run_sd=run_sd)
        for basins in (("steep", "steep"), ("skewed", "skewed"), unlike, ("beyond", "beyond")):
            yield replace(usual, basins=basins)
            yield replace(usual, basins=basins, judges_best_trial=True)
            yield replace(usual, basins=basins, trials=6, tuning_seeds=5, replicates=5)
        yield replace(usual, basins=TEN, trials=6)
        for noise in ("t3", "log-normal"):
            for noisier in (1.0, 2.0):
                yield replace(usual, noise=noise, noisier=noisier)
        for basins in (("wall", "wall"), ("cliff", "cliff"), ("flat", "chance"), ("flat", "kink"), ("kink", "kink")):
            yield replace(usual, basins=basins)
            yield replace(usual, basins=basins, trials=6, tuning_seeds=5, replicates=5)
        for seeds, tuning_seeds in ((3, 3), (5, 3), (20, 3), (20, 7), (50, 3), (50, 17)):
            yield replace(usual, seeds=seeds, tuning_seeds=tuning_seeds)


def main() -> None:
    """Simulate, print, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--experiments", type=int, default=1000, help="in each world")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="write the result here")
    given = parser.parse_args()
    begun, found = perf_counter(), []
    print(f"{'':70}" + "".join(f"{name.replace('falsely', 'false'):>14}" for name in (*FIGURES, "runs")), flush=True)
    for world in worlds():
        figures = simulate(world, given.experiments, given.seed)
        found.append(asdict(world) | figures)
        shares = "".join(f"{100 * figures[name]:14.1f}" for name in FIGURES)
        print(f"{world.name():70}{shares}{figures['runs']:14.0f}", flush=True)
    print(f"{perf_counter() - begun:.0f} s")
    if given.json:
        write_result(given.json, "error_rates", {"experiments": given.experiments, "worlds": found})


if __name__ == "__main__":
    main()
