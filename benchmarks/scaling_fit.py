"""Coverage of a scaling law's intervals, power, and the time of a fit.

    OMP_NUM_THREADS=1 python -m benchmarks.scaling_fit --json benchmarks/results/scaling-fit.json

Two optimizers follow one planted law at model sizes × token budgets × seeds; in a second pass AdaPM's loss rises above
it, from nothing at the smallest size to 0.05 nats at the largest. Each cell of each optimizer is off its law by an
error that its seeds share, as by the luck of its tuning; seeds come on top, most of their noise common to both. The
validation text flatters one of the two, at all sizes alike. Every data set goes through `fit_experiments`, as
`adapm-bench fit` does.
"""

import argparse
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

import numpy as np

from benchmarks.result_file import processor, write_result
from orchestrator.analysis.comparison import evaluation_error
from orchestrator.analysis.laws.fit import DRAWS, fit_experiments
from orchestrator.analysis.laws.model import FORMS, Cell
from orchestrator.analysis.laws.records import FitReport, FormName
from orchestrator.records import Conclusion, ExperimentWithRuns
from tests.factories.comparison import records
from tests.factories.stores import comparison_spec, result

HOFFMANN = {"E": 1.69, "A": 406.4, "alpha": 0.34, "B": 410.7, "beta": 0.28}
"""Hoffmann et al., arXiv 2203.15556, equation 10."""
FLOORED, STRAIGHT = {"E": 1.8, "A": 50.0, "alpha": 0.25}, {"A": 12.0, "alpha": 0.08}
NOISE = 0.003
"""The noise of the log loss between seeds, common to both optimizers …"""
OWN_NOISE = 0.001
"""… and of each by itself."""
SHARED = 0.0017
"""The noise of the log loss that the seeds of a cell share: errors of tuning in simulated grids."""
GAP = 0.05
"""Nats at the largest size, in the second pass."""
AHEAD = 3
"""A loss is predicted at so many times the largest size."""


@dataclass(frozen=True, kw_only=True)
class World:
    """A design, and the law that both optimizers follow in it."""

    form: FormName
    law: dict[str, float]
    cells: tuple[Cell, ...]
    seeds: int = 3
    shared: float = SHARED
    tailed: bool = False
    """Whether the cells' errors are Student's t with 3 degrees of freedom, of the same variance."""
    gap: float = 0.0
    """AdaPM's loss above its law at the largest size, nats; it rises with log N from the smallest."""

    def loss(self, parameters: float, tokens: float, candidate: str = "adamw") -> float:
        """Nats."""
        of_tokens = self.law["B"] * tokens ** -self.law["beta"] if "B" in self.law else 0.0
        nats = float(self.law.get("E", 0.0) + self.law["A"] * parameters ** -self.law["alpha"] + of_tokens)
        smallest, largest = (np.log(pick(size for size, _ in self.cells)) for pick in (min, max))
        return nats + (candidate == "adapm") * self.gap * float((np.log(parameters) - smallest) / (largest - smallest))


def line(count: int) -> tuple[Cell, ...]:
    """Sizes over three decades and a half, each at its budget."""
    return tuple((round(n), round(20 * n)) for n in np.geomspace(1e6, 3e9, count))


def grid(sizes: int, budgets: int) -> tuple[Cell, ...]:
    """Every size at every budget."""
    n, d = np.geomspace(4e7, 1.5e9, sizes), np.geomspace(1e9, 3e10, budgets)
    return tuple((round(size), round(budget)) for size in n for budget in d)


WORLDS = {
    "4 sizes": World(form="n0", law=STRAIGHT, cells=line(4)),
    "6 sizes": World(form="n0", law=STRAIGHT, cells=line(6)),
    "5 sizes, floor": World(form="n", law=FLOORED, cells=line(5)),
    "7 sizes, floor": World(form="n", law=FLOORED, cells=line(7)),
    "7 sizes, floor, t3": World(form="n", law=FLOORED, cells=line(7), tailed=True),
    "3 sizes × 3 budgets": World(form="nd", law=HOFFMANN, cells=grid(3, 3)),
    "4 sizes × 3 budgets": World(form="nd", law=HOFFMANN, cells=grid(4, 3)),
    "5 sizes × 4 budgets": World(form="nd", law=HOFFMANN, cells=grid(5, 4)),
}


def planted(world: World, datasets: int, seed: int = 0) -> Iterator[list[ExperimentWithRuns]]:
    """Data sets: a comparison at each cell, whose runs have ended at the law's loss and their errors."""
    random = np.random.default_rng(seed)
    spec = comparison_spec(optimizers=("adamw", "adapm"), seeds=range(world.seeds))
    bare = [records(spec, lambda *_run: result(), experiment=f"e{index}") for index in range(len(world.cells))]
    for _ in range(datasets):
        measured: list[ExperimentWithRuns] = []
        of_text = float(random.normal(0, evaluation_error(spec.workload.validation_tokens())))
        for (parameters, tokens), (experiment, runs) in zip(world.cells, bare, strict=True):
            common = random.normal(0, NOISE, world.seeds)
            errors = world.shared * (random.standard_t(3, 2) / np.sqrt(3) if world.tailed else random.normal(0, 1, 2))
            ended = []
            for run in runs:
                of_cell = errors[int(run.candidate == "adapm")]
                factor = float(np.exp(common[run.seed] + random.normal(0, OWN_NOISE) + of_cell))
                loss = world.loss(parameters, tokens, run.candidate) * factor + of_text * (run.candidate == "adapm")
                fields = {"final_val_loss": loss, "parameters": parameters, "tokens": tokens}
                ended.append(run.model_copy(update={"result": result().model_copy(update=fields)}))
            measured.append((experiment, tuple(ended)))
        yield measured


def held(report: FitReport, world: World) -> Iterator[tuple[str, bool]]:
    """Yield for every interval of a report whether it includes the planted value."""
    adamw, adapm = report.fits

    def holds(low: float | None, value: float, high: float | None) -> bool:
        return (low is None or low <= value) and (high is None or value <= high)

    for name, estimate in adamw.coefficients.items():
        yield name, holds(estimate.low, world.law[name], estimate.high)
    for prediction in adamw.predictions:
        yield (
            "predicted loss",
            holds(prediction.loss.low, world.loss(prediction.parameters, prediction.tokens), prediction.loss.high),
        )
    for point in adapm.loss_differences:
        true = world.loss(point.parameters, point.tokens, "adapm") - world.loss(point.parameters, point.tokens)
        yield "difference", holds(point.difference.low, true, point.difference.high)
    if adapm.change is not None:
        yield "change", holds(adapm.change.low, world.gap, adapm.change.high)


def covered(world: World, datasets: int, draws: int, seed: int = 0) -> dict[str, Any]:
    """Return the shares over so many data sets of one world, each through the whole fit."""
    counts: Counter[str] = Counter()
    total: Counter[str] = Counter()
    ahead = AHEAD * max(parameters for parameters, _ in world.cells)
    for measured in planted(world, datasets, seed):
        report = fit_experiments(measured, form=world.form, predict=[(ahead, None)], draws=draws)
        for name, holds in held(report, world):
            counts[name] += holds
            total[name] += 1
        adapm = report.fits[1]
        counts["no law"] += any(fit.no_law is not None for fit in report.fits)
        counts["told apart"] += adapm.conclusion in (Conclusion.BETTER, Conclusion.WORSE)
        counts["worse"] += adapm.conclusion is Conclusion.WORSE
        change = adapm.change
        counts["changes"] += change is not None and ((change.low or 0.0) > 0 or (change.high or 0.0) < 0)
    shares = {name: round(counts[name] / total[name], 3) for name in total}
    events = ("no law", "told apart", "worse", "changes")
    return {"held": shares} | {name: round(counts[name] / datasets, 3) for name in events}


def seconds(world: World, rounds: int = 3) -> float:
    """Processor time of one fit of two candidates as the service does it."""
    times = []
    for measured in planted(world, rounds):
        begun = process_time()
        fit_experiments(measured, form=world.form)
        times.append(process_time() - begun)
    return round(median(times), 2)


def main() -> None:
    """Measure, print, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", type=int, default=200, help="of each world and pass")
    parser.add_argument("--draws", type=int, default=200, help="bootstrap draws of each of these fits")
    parser.add_argument("--seed", type=int, default=0, help="of the data sets")
    parser.add_argument("--json", type=Path, help="write the result here")
    options = parser.parse_args()
    worlds = []
    for name, world in WORLDS.items():
        equal = covered(world, options.datasets, options.draws, options.seed)
        with_gap = covered(World(**(vars(world) | {"gap": GAP})), options.datasets, options.draws, options.seed)
        coverage = {"world": name, "form": FORMS[world.form].formula, "equal": equal, "gap": with_gap}
        worlds.append(coverage | {"seconds_of_a_fit": seconds(world)})
        print(worlds[-1], flush=True)
    if options.json:
        figures = {
            "machine": {"processor": processor(), "cores": os.cpu_count(), "cores_used": 1},
            "errors": {"seeds": NOISE, "own": OWN_NOISE, "shared_by_a_cell": SHARED, "gap_nats": GAP},
            "datasets": options.datasets,
            "draws": options.draws,
            "draws_of_a_timed_fit": DRAWS,
            "worlds": worlds,
        }
        write_result(options.json, "scaling_fit", figures)


if __name__ == "__main__":
    main()
