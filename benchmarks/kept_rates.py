"""How often clones at kept rates are wrong: more seeds for a comparison that was undecided, without another tuning.

    OMP_NUM_THREADS=1 python -m benchmarks.kept_rates --json benchmarks/results/kept-rates.json

Equal optimizers of the worlds of `benchmarks/verdicts.py` are tuned and judged on five seeds; then a clone runs each at
the rate that it was judged at, on fresh seeds, as `adapm-bench clone ID --fresh-seeds 20 --keep-rates` does. Printed,
in per cent of experiments: those of the tuned comparisons that called one better or worse, and those of the clones with
5, 10 and 20 fresh seeds; the same without what the tuning had left open, as verdicts on these rates alone are
(`at_rates`); and of optimizers of which one is better by 0.02 nats, the clones that found it. Then the same of searches
of more than the rate, whose clones have 20 fresh seeds (the worlds of `benchmarks/searched_verdicts.py`).
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter

import numpy as np

from benchmarks.result_file import write_result
from benchmarks.searched_verdicts import World as Search
from benchmarks.searched_verdicts import conducted
from benchmarks.verdicts import GAIN, LOSS, NAMES, Optimizer, Runs, World, optimizers, record, specification, tuned
from orchestrator.analysis.comparison import compare, regrets
from orchestrator.kinds.comparison import ComparisonSpec, KeptRates
from orchestrator.kinds.tuning import TuningRun
from orchestrator.records import RunRecord
from tests.factories.comparison import experiment_record, run_record
from worker.records.result import Verdict

JUDGED = 5
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
SEARCHES = tuple(
    Search(method=method, axes=axes, trials=trials, optima="near", sensitivities=sensitivities, seeds=JUDGED + 20)
    for method in ("random", "coordinate")
    for axes, trials in ((3, 16), (6, 24))
    for sensitivities in ((1.0, 1.0), (1.0, 5.0))
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


def simulate_search(world: Search, experiments: int, seed: int) -> dict[str, float]:
    """Shares of experiments of equal optimizers. The first five of the world's seeds judge, the others are fresh."""
    random = np.random.default_rng([seed, world.axes, world.trials])
    counts = {"tuned": 0, "false_20": 0, "at_rates_20": 0}
    for number in range(experiments):
        whole, every, _ = conducted(world, number, 0.0, random)
        first, rest = whole.seeds[:JUDGED], whole.seeds[JUDGED:]
        source = whole.model_copy(update={"seeds": first})
        records = [run for run in every if run.seed not in rest]
        rows = compare(experiment_record(source, len(records)), records).rows
        best = {row.candidate: row.best() for row in rows}
        settings = {name: {**rate.setting, "lr": rate.lr} for name, rate in best.items() if rate is not None}
        shared = [setting.pop("clip_grad_norm", None) for setting in settings.values()]
        assert len(shared) == len(whole.candidates), "nothing diverges in these worlds"
        counts["tuned"] += any(row.conclusion.value in ("better", "worse") for row in rows)
        fresh = [run for run in every if run.seed in rest]
        left_open = KeptRates(experiment="e", regrets=regrets(source, records))
        for name, kept in (("false_20", left_open), ("at_rates_20", None)):
            at_settings = source.with_settings(settings, kept).model_copy(update={"seeds": rest})
            told = compare(experiment_record(at_settings, len(fresh)), fresh).rows
            counts[name] += any(row.conclusion.value in ("better", "worse") for row in told)
    return {name: round(count / experiments, 4) for name, count in counts.items()}


def main() -> None:
    """Simulate, print, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--experiments", type=int, default=150, help="of each kind in each world")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="write the result here")
    given = parser.parse_args()
    begun, found = perf_counter(), []
    for world in (replace(each, seeds=JUDGED) for each in WORLDS):
        shares = simulate(world, given.experiments, given.seed)
        found.append({"world": world.name()} | shares)
        print(
            f"{world.name():32}" + "  ".join(f"{name} {100 * value:.1f}" for name, value in shares.items()), flush=True
        )
    for search in SEARCHES:
        shares = simulate_search(search, given.experiments, given.seed)
        title = f"{search.method}, {search.axes} axes, {search.trials} trials, {search.sensitivities}"
        found.append({"world": title} | shares)
        cells = "  ".join(f"{name} {100 * value:.1f}" for name, value in shares.items())
        print(f"{title:48}{cells}", flush=True)
    print(f"{perf_counter() - begun:.0f} s")
    if given.json:
        write_result(given.json, "kept_rates", {"experiments": given.experiments, "worlds": found})


if __name__ == "__main__":
    main()
