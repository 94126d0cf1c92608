"""Verdicts of comparisons that add seeds while one is open: how often they are wrong, and how many runs they save.

    OMP_NUM_THREADS=1 python -m benchmarks.sequential --json benchmarks/results/sequential.json

The worlds are those of `benchmarks/error_rates.py`. Each experiment is judged twice on the same losses: with all seeds
at once, and at one look after another from the third seed on, where a candidate's seeds end with its verdict, or when
the last look would decide with a chance below `FUTILE`. Printed for both, in per cent: experiments of equal candidates
in which any was called better or worse, candidates better by 0.01 and 0.02 nats that were found, equal ones called as
good within 0.01; and the judged runs of an experiment of equal candidates, and of others that are better by 0.02.
"""

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from time import perf_counter

import numpy as np

from benchmarks.error_rates import MARGIN, RUN_SDS, TEN, Runs, World, judged_runs
from benchmarks.result_file import write_result
from orchestrator.analysis.candidates import design_looks
from orchestrator.analysis.estimator import JudgedRuns, conclude, paired_difference
from orchestrator.analysis.sequential import FUTILE, chance_of_verdict
from orchestrator.design import ComparisonDesign
from orchestrator.kinds.comparison import ComparisonSpec, Sequential
from orchestrator.records import Conclusion, Difference

GAINS = (0.0, 0.01, 0.02)
DECIDED = (Conclusion.BETTER, Conclusion.WORSE, Conclusion.AS_GOOD)


def judge(spec: ComparisonSpec, candidate: JudgedRuns, baseline: JudgedRuns, seeds: int) -> tuple[Conclusion, bool]:
    """The verdict on the first so many seeds, and whether more of them are queued."""
    design = spec.design()
    of_mine, of_baseline = (_on_seeds(runs, spec.seeds[:seeds]) for runs in (candidate, baseline))
    looks, count = design_looks(design, design.comparisons), design.comparisons
    difference = paired_difference(
        of_mine.losses, of_baseline.losses, comparisons=count, margin=design.margin, looks=looks
    )
    conclusion = conclude(difference, of_mine, of_baseline)
    return conclusion, conclusion not in DECIDED and _can_decide(design, difference)


def _on_seeds(judged: JudgedRuns, seeds: Sequence[int]) -> JudgedRuns:
    losses = {seed: loss for seed, loss in judged.losses.items() if seed in seeds}
    return replace(judged, losses=losses, lost={*judged.lost} & {*seeds}, ended=seeds)


def _can_decide(design: ComparisonDesign, difference: Difference | None) -> bool:
    looks, limit = design_looks(design, design.comparisons) or {}, len(design.seeds)
    if difference is None or difference.sd is None or difference.n >= limit or limit not in looks:
        return True
    level, margin = looks[limit].level, difference.margin
    return chance_of_verdict(difference.mean, difference.sd, difference.n, limit, level, margin=margin) >= FUTILE


def conduct(spec: ComparisonSpec, judged: Sequence[JudgedRuns]) -> tuple[list[Conclusion], int]:
    """The verdicts on all but the baseline, and the judged runs that they took: the baseline has as many seeds as the
    candidate that has most."""
    conclusions, used = [], []
    for candidate in judged[1:]:
        seeds = len(spec.first_seeds())
        conclusion, goes_on = judge(spec, candidate, judged[0], seeds)
        while goes_on and seeds < len(spec.seeds):
            seeds += 1
            conclusion, goes_on = judge(spec, candidate, judged[0], seeds)
        conclusions.append(conclusion)
        used.append(seeds)
    return conclusions, sum(used) + max(used)


def simulate(world: World, experiments: int, seed: int = 0) -> dict[str, dict[str, float]]:
    """The figures of both designs."""
    at_once = world.specification()
    designs = {"sequential": at_once.model_copy(update={"sequential": Sequential()}), "at_once": at_once}
    random = np.random.default_rng([seed, *repr(world).encode()])
    hits = {design: Counter[str]() for design in designs}
    comparisons = len(world.basins) - 1
    for _ in range(experiments):
        runs = Runs(world, random)
        equal = [judged_runs(at_once, index, runs) for index in range(len(world.basins))]
        for gain in GAINS:
            judged = [equal[0], *(_lower(candidate, gain) for candidate in equal[1:])]
            for design, spec in designs.items():
                conclusions, used = conduct(spec, judged)
                count = hits[design]
                count[f"runs_{gain:g}"] += used * comparisons
                count[f"found_{gain:g}"] += conclusions.count(Conclusion.BETTER)
                if not gain:
                    count["as_good"] += conclusions.count(Conclusion.AS_GOOD)
                    count["false"] += comparisons * any(
                        conclusion in (Conclusion.BETTER, Conclusion.WORSE) for conclusion in conclusions
                    )
    names = ("false", "found_0.01", "found_0.02", "as_good", "runs_0", "runs_0.02")
    return {
        design: {name: round(count[name] / (experiments * comparisons), 4) for name in names}
        for design, count in hits.items()
    }


def _lower(judged: JudgedRuns, gain: float) -> JudgedRuns:
    return replace(judged, losses={seed: loss - gain for seed, loss in judged.losses.items()})


def worlds() -> Iterator[World]:
    """Yield the worlds of the table."""
    for run_sd in RUN_SDS:
        untuned = World(basins=("flat", "flat"), run_sd=run_sd, tuning_seeds=0)
        for seeds in (5, 10, 20):
            yield replace(untuned, seeds=seeds)
        yield replace(untuned, noise="t3")
        yield replace(untuned, noise="log-normal", noisier=2.0)
        yield replace(untuned, basins=TEN)
        yield World(basins=("flat", "skewed"), run_sd=run_sd)


def main() -> None:
    """Simulate, print, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--experiments", type=int, default=1000, help="in each world; a fifth of ten candidates")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="write the result here")
    options = parser.parse_args()
    begun, rows = perf_counter(), []
    for world in worlds():
        experiments = options.experiments // (5 if world.basins == TEN else 1)
        for design, figures in simulate(world, experiments, options.seed).items():
            rows.append(asdict(world) | {"design": design, "experiments": experiments} | figures)
            shares = "".join(
                f"  {name} {value:g}" if name.startswith("runs") else f"  {name} {100 * value:.1f}"
                for name, value in figures.items()
            )
            print(f"{world.name():70}{design:12}{shares}", flush=True)
    print(f"{perf_counter() - begun:.0f} s")
    if options.json:
        write_result(options.json, "sequential", {"margin": MARGIN, "worlds": rows})


if __name__ == "__main__":
    main()
