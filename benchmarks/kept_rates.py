"""How often clones at kept rates are wrong: more seeds for a comparison that was undecided, without another tuning.

    OMP_NUM_THREADS=1 python -m benchmarks.kept_rates --json benchmarks/results/kept-rates.json

Equal optimizers of the worlds of `benchmarks/verdicts.py` are tuned and judged on five seeds; then a clone runs each at
the rate that it was judged at, on fresh seeds, as `adapm-bench clone ID --fresh-seeds 20 --keep-rates` does. Printed,
in per cent of experiments: those of the tuned comparisons that called one better or worse, and those of the clones with
5, 10 and 20 fresh seeds; the same without what the tuning had left open, as verdicts on these rates alone are
(`at_rates`); and of optimizers of which one is better by 0.02 nats, the clones that found it. Then the same of searches
of more than the rate, whose clones have 20 fresh seeds (the worlds of `benchmarks/searched_verdicts.py`), and of
sweeps, whose best trials `adapm-bench sweep compare` holds against each other on 5 and 20 fresh seeds. Of asynchronous
halving a third of the trials run to their end, those with the lowest losses of an early and noisier look.
"""

import argparse
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import optuna

from benchmarks.result_file import write_result
from benchmarks.searched_verdicts import World as Search
from benchmarks.searched_verdicts import conducted as conducted_search
from benchmarks.verdicts import (
    GAIN,
    LOSS,
    NAMES,
    Optimizer,
    Runs,
    World,
    conducted,
    ended_run,
    optimizers,
    record,
    specification,
)
from optim.catalog import Scalar
from orchestrator.analysis.comparison import compare, regrets
from orchestrator.analysis.sequential import Array
from orchestrator.kinds.comparison import ComparisonSpec, KeptRates
from orchestrator.kinds.sweep import Algorithm, SearchedCandidate, SweepSpec
from orchestrator.kinds.trials import planned_parameters, trial_run
from orchestrator.records import RunRecord
from orchestrator.sweeps.importance import distributions
from orchestrator.sweeps.report import comparison_of_the_best, report
from orchestrator.tuning.search_spaces import share_of
from tests.factories.comparison import experiment_record, run_record
from tests.factories.stores import result
from worker.records.result import Verdict
from worker.words import pluralize

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
    at_rates = spec.fix_settings({name: {"lr": rate} for name, rate in rates.items()}, kept)
    return at_rates.model_copy(update={"seeds": tuple(range(1000, 1000 + seeds))})


def judged(spec: ComparisonSpec, truths: Sequence[Optimizer], runs: Runs, template: RunRecord) -> list[RunRecord]:
    """Every candidate at its one rate."""
    found: list[RunRecord] = []
    for candidate, truth in zip(spec.candidates, truths, strict=True):
        (rate,) = candidate.learning_rates
        for seed in spec.seeds:
            trial = ended_run(rate, seed, runs.loss(truth, rate, seed))
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
    counts = Counter[str]()
    for gain in (0.0, 2 * GAIN):
        random = np.random.default_rng([seed, round(1000 * gain), *world.name().encode()])
        for _ in range(experiments):
            truths, runs = optimizers(world, [0.0, -gain], random), Runs(world, random)
            records = conducted(spec, truths, runs, template)
            first = compare(experiment_record(spec, len(records)), records)
            rates = {row.candidate: row.best_lr for row in first.rows if row.best_lr is not None}
            words = {row.candidate: row.conclusion.value for row in first.rows}
            if len(rates) < len(spec.candidates):
                continue
            if not gain:
                counts["tuned"] += words[NAMES[1]] in ("better", "worse")
            kept = KeptRates(experiment="e", regrets=regrets(spec, records))
            for seeds in FRESH:
                of_rates = clone(spec, rates, kept, seeds)
                fresh = judged(of_rates, truths, runs, template)
                said = conclusion(of_rates, fresh)
                if gain:
                    counts[f"found_{seeds}"] += said == "better"
                    continue
                counts[f"false_{seeds}"] += said in ("better", "worse")
                alone = conclusion(clone(spec, rates, None, seeds), fresh)
                counts[f"at_rates_{seeds}"] += alone in ("better", "worse")
    return {name: round(count / experiments, 4) for name, count in counts.items()}


def simulate_search(world: Search, experiments: int, seed: int) -> dict[str, float]:
    """Shares of experiments of equal optimizers. The first five of the world's seeds judge, the others are fresh."""
    random = np.random.default_rng([seed, world.axes, world.trials])
    counts = {"tuned": 0, "false_20": 0, "at_rates_20": 0}
    for number in range(experiments):
        whole, every, _ = conducted_search(world, number, 0.0, random)
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
            at_settings = source.fix_settings(settings, kept).model_copy(update={"seeds": rest})
            told = compare(experiment_record(at_settings, len(fresh)), fresh).rows
            counts[name] += any(row.conclusion.value in ("better", "worse") for row in told)
    return {name: round(count / experiments, 4) for name, count in counts.items()}


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """Two candidates that are one optimizer, whose trials differ."""

    algorithm: Algorithm
    axes: int
    trials: int
    lr_rises: float = 0.1
    """Nats from the best value to half of the range away; along the other axes a fifth of it."""

    def specification(self, number: int) -> SweepSpec:
        """With another seed for each experiment."""
        space = dict(islice(SPACE.items(), self.axes))
        return SweepSpec(
            name="s",
            workload=specification(World(basin="flat")).workload,
            seed=1000 * number,
            trials=self.trials,
            algorithm=self.algorithm,
            candidates=tuple(SearchedCandidate(optimizer="adamw", label=name, space=space) for name in NAMES),
        )

    def rises(self, candidate: SearchedCandidate, parameters: Mapping[str, Scalar], best: Array) -> float:
        """Nats above the best settings, whose places in the ranges run from -1 to 1."""
        places = [2 * share_of(domain, parameters[name]) - 1 for name, domain in candidate.ranges().items()]
        steep = np.where(np.arange(self.axes) == 0, self.lr_rises, self.lr_rises / 5)
        return float(steep @ (np.array(places) - best) ** 2)


EARLY = -1
"""The look of asynchronous halving, among the seeds."""
SWEEP_GAIN = 0.05
MOST_SWEEPS = 60
"""Of a world: a sweep of 64 trials takes a tenth of a second."""
SPACE: dict[str, Any] = {
    "lr": {"kind": "log-uniform", "low": 1.25e-4, "high": 8e-3},
    "beta2": {"kind": "log-uniform", "low": 0.8, "high": 0.99},
    "weight_decay": {"kind": "log-uniform", "low": 0.01, "high": 1.0},
    "beta1": {"kind": "uniform", "low": 0.7, "high": 0.97},
    "eps": {"kind": "log-uniform", "low": 1e-10, "high": 1e-6},
}
SWEEPS = tuple(
    Sweep(algorithm=algorithm, axes=axes, trials=trials)
    for algorithm in ("random", "tpe", "asha")
    for axes, trials in ((1, 16), (3, 16), (3, 64), (5, 24))
)


def sweep_trials(
    sweep: Sweep, spec: SweepSpec, loss: Callable[[str, Mapping[str, Scalar], int], float]
) -> list[RunRecord]:
    """Every trial of a sweep; of halving those that were stopped as well."""
    found: list[RunRecord] = []
    studies = [optuna.create_study(sampler=optuna.samplers.TPESampler(seed=spec.seed + i)) for i in range(len(NAMES))]
    for number in range(spec.trial_count()):
        place = number % len(spec.candidates)
        if sweep.algorithm == "tpe":
            trial = studies[place].ask(distributions(spec.candidates[place]))
            planned = trial_run(spec, number, trial.params)
            ended = loss(NAMES[place], trial.params, spec.seed)
            studies[place].tell(trial, ended)
        else:
            parameters = planned_parameters(spec, number) or {}
            planned, ended = trial_run(spec, number, parameters), loss(NAMES[place], parameters, spec.seed)
        found.append(run_record(planned, number, ended))
    if sweep.algorithm != "asha":
        return found
    early = {
        run.id: loss(run.candidate, spec.searched_parameters(run.position, run.spec) or {}, EARLY)
        for run in found
        if run.spec
    }
    kept = {
        run.id
        for name in NAMES
        for mine in [sorted((run for run in found if run.candidate == name), key=lambda run: early[run.id])]
        for run in mine[: -(-len(mine) // 3)]
    }
    stopped = result(verdict=Verdict.STOPPED_EARLY)
    return [run if run.id in kept else run.model_copy(update={"result": stopped}) for run in found]


def simulate_sweep(sweep: Sweep, experiments: int, seed: int) -> dict[str, float]:
    """Shares of experiments: of equal optimizers, and of those of which the second is better by `SWEEP_GAIN`."""
    random = np.random.default_rng([seed, sweep.axes, sweep.trials])
    counts = Counter[str]()
    for number in range(experiments):
        spec = sweep.specification(number)
        best, effects = random.uniform(-0.8, 0.8, sweep.axes), dict[int, float]()

        def loss(
            name: str,
            parameters: Mapping[str, Scalar],
            of: int,
            best: Array = best,
            effects: dict[int, float] = effects,
            spec: SweepSpec = spec,
        ) -> float:
            effect = effects.setdefault(of, random.normal(0, 0.016))
            noise = random.normal(0, 0.01 if of == EARLY else 0.0035)
            return LOSS + sweep.rises(spec.candidates[NAMES.index(name)], parameters, best) + float(effect + noise)

        runs = sweep_trials(sweep, spec, loss)
        found = report(experiment_record(spec, len(runs)), runs, importance=False)
        at = {each.candidate: each.best.parameters for each in found.findings if each.best}
        for seeds in (5, 20):
            of_best = comparison_of_the_best(found, spec, seeds)
            planned = of_best.first_runs()
            losses = [loss(each.candidate, at[each.candidate], each.spec.seed) for each in planned]
            for name, kept, gain in (
                ("false", of_best.kept_rates, 0.0),
                ("at_rates", None, 0.0),
                ("found", of_best.kept_rates, SWEEP_GAIN),
            ):
                fresh = [
                    run_record(each, i, value - gain * (each.candidate == NAMES[1]))
                    for i, (each, value) in enumerate(zip(planned, losses, strict=True))
                ]
                said = conclusion(of_best.model_copy(update={"kept_rates": kept}), fresh)
                counts[f"{name}_{seeds}"] += said == "better" if gain else said in ("better", "worse")
    return {name: round(count / experiments, 4) for name, count in counts.items()}


def results(experiments: int, seed: int) -> Iterator[tuple[str, dict[str, float]]]:
    """Of each world, its name and the shares."""
    for world in (replace(each, seeds=JUDGED) for each in WORLDS):
        yield world.name(), simulate(world, experiments, seed)
    for search in SEARCHES:
        title = f"{search.method}, {search.axes} axes, {search.trials} trials, {search.sensitivities}"
        yield title, simulate_search(search, experiments, seed)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    for sweep in SWEEPS:
        title = f"sweep, {sweep.algorithm}, {pluralize(sweep.axes, 'axis', 'axes')}, {sweep.trials} trials"
        yield title, simulate_sweep(sweep, min(experiments, MOST_SWEEPS), seed)


def main() -> None:
    """Simulate, print, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--experiments", type=int, default=150, help="of each kind in each world")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="write the result here")
    given = parser.parse_args()
    begun, found = perf_counter(), []
    for title, shares in results(given.experiments, given.seed):
        found.append({"world": title} | shares)
        cells = "  ".join(f"{name} {100 * value:.1f}" for name, value in shares.items())
        print(f"{title:48}{cells}", flush=True)
    print(f"{perf_counter() - begun:.0f} s")
    if given.json:
        write_result(given.json, "kept_rates", {"experiments": given.experiments, "worlds": found})


if __name__ == "__main__":
    main()
