"""How often clones at kept rates are wrong: more seeds for a comparison that was undecided, without another tuning.

    OMP_NUM_THREADS=1 python -m benchmarks.kept_rates --json benchmarks/results/kept-rates.json

Equal optimizers of the worlds of `benchmarks/verdicts.py` are tuned and judged on five seeds; then a clone runs each at
the rate that it was judged at, on fresh seeds, as `adapm-bench clone ID --fresh-seeds 20 --keep-rates` does. Printed,
in per cent of experiments: those of the tuned comparisons that called one better or worse, and those of the clones with
5, 10 and 20 fresh seeds; the same without what the tuning had left open, as verdicts on these rates alone are
(`at_rates`); and of optimizers of which one is better by 0.02 nats, the clones that found it.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter

import numpy as np

from benchmarks.result_file import write_result
from benchmarks.verdicts import GAIN, LOSS, NAMES, Optimizer, Runs, World, optimizers, record, specification, tuned
from orchestrator.analysis.comparison import compare, regrets
from orchestrator.kinds.comparison import ComparisonSpec, KeptRates
from orchestrator.kinds.tuning import TuningRun
from orchestrator.records import RunRecord
from tests.factories.comparison import experiment_record, run_record
from worker.records.result import Verdict

FRESH = (5, 10, 20)
WORLDS = (
    World(basin="flat"),
    World(basin="steep"),
    World(basin="mixed"),
    World(basin="skew"),
    World(basin="kink", unlike=True),
    World(basin="wall", unlike=True),
    World(basin="cliff", unlike=True),
    World(basin="edge"),
)


def clone(spec: ComparisonSpec, rates: Mapping[str, float], kept: KeptRates | None, seeds: int) -> ComparisonSpec:
    """The same candidates at these rates on fresh seeds."""
    at_rates = spec.with_settings({name: {"lr": rate} for name, rate in rates.items()}, kept)
    return at_rates.model_copy(update={"seeds": tuple(range(1000, 1000 + seeds))})


def judged(spec: ComparisonSpec, truths: Sequence[Optimizer], runs: Runs, template: RunRecord) -> list[RunRecord]:
    """Every candidate at its one rate."""
    found: list[RunRecord] = []
    for candidate, truth in zip(spec.candidates, truths, strict=True):
        (rate,) = candidate.learning_rates
        for seed in spec.seeds:
            loss = runs.loss(truth, rate, seed)
            verdict = Verdict.DIVERGED if loss is None else Verdict.CONVERGED
            trial = TuningRun(lr=rate, seed=seed, ended=True, verdict=verdict, loss=loss)
            found.append(record(template, len(found), candidate.name(), trial))
    return found


def conclusion(spec: ComparisonSpec, records: Sequence[RunRecord]) -> str:
    """Of the second candidate."""
    rows = compare(experiment_record(spec, len(records)), records).rows
    return next(row.conclusion.value for row in rows if row.candidate == NAMES[1])


def simulate(world: World, experiments: int, seed: int) -> dict[str, float]:
    """Shares of experiments."""
    spec = specification(world)
    template = run_record(spec.first_runs()[0], 0, LOSS)
    counts: dict[str, int] = {}
    for gain in (0.0, 2 * GAIN):
        random = np.random.default_rng([seed, round(1000 * gain), *world.name().encode()])
        for _ in range(experiments):
            truths, runs = optimizers(world, [0.0, -gain], random), Runs(world, random)
            trials = [
                (candidate.name(), trial)
                for candidate, truth in zip(spec.candidates, truths, strict=True)
                for trial in tuned(spec, candidate, truth, runs)
            ]
            records = [record(template, place, *each) for place, each in enumerate(trials)]
            first = compare(experiment_record(spec, len(records)), records)
            rates = {row.candidate: row.best_lr for row in first.rows if row.best_lr is not None}
            words = {row.candidate: row.conclusion.value for row in first.rows}
            if len(rates) < len(spec.candidates):
                continue
            if not gain:
                counts["tuned"] = counts.get("tuned", 0) + (words[NAMES[1]] in ("better", "worse"))
            kept = KeptRates(experiment="e", regrets=regrets(spec, records))
            for seeds in FRESH:
                of_rates = clone(spec, rates, kept, seeds)
                fresh = judged(of_rates, truths, runs, template)
                said = conclusion(of_rates, fresh)
                if gain:
                    counts[f"found_{seeds}"] = counts.get(f"found_{seeds}", 0) + (said == "better")
                    continue
                counts[f"false_{seeds}"] = counts.get(f"false_{seeds}", 0) + (said in ("better", "worse"))
                alone = conclusion(clone(spec, rates, None, seeds), fresh)
                counts[f"at_rates_{seeds}"] = counts.get(f"at_rates_{seeds}", 0) + (alone in ("better", "worse"))
    return {name: round(count / experiments, 4) for name, count in counts.items()}


def main() -> None:
    """Simulate, print, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--experiments", type=int, default=150, help="of each kind in each world")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="write the result here")
    given = parser.parse_args()
    begun, found = perf_counter(), []
    for world in (replace(each, seeds=5) for each in WORLDS):
        shares = simulate(world, given.experiments, given.seed)
        found.append({"world": world.name()} | shares)
        print(
            f"{world.name():32}" + "  ".join(f"{name} {100 * value:.1f}" for name, value in shares.items()), flush=True
        )
    print(f"{perf_counter() - begun:.0f} s")
    if given.json:
        write_result(given.json, "kept_rates", {"experiments": given.experiments, "worlds": found})


if __name__ == "__main__":
    main()
