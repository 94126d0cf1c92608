"""What laws say of optimizers that were tuned at every size: does drift survive the choice of the learning rate?

    OMP_NUM_THREADS=1 python -m benchmarks.tuned_laws --json benchmarks/results/tuned-laws.json

Two optimizers at six sizes, whose losses at their best rates follow a law each. Their best rates move with size, each
by its own step, and grids stand still: so one misses more than the other, at some sizes more than at others, and that
can look like drift. Every cell is tuned as the product tunes it (`benchmarks/verdicts.py` has the losses of runs), and
all go through `fit_experiments`, as `adapm-bench fit` does.

Grids are of three or five rates, a factor of two apart. *Each size*: tuned on three seeds, extended by two rates where
the best one is at an edge, judged on five. *Untuned*: every one of three seeds at every rate. *Kept*: tuned at the
smallest size alone, whose rates the others take over.

Printed for each world, in per cent: equal optimizers that were said to lose or gain ground, that the band of losses
told apart at any size, that were told apart at a typical size; cells of a law whose best rate was open; experiments
with no verdict on drift because of these; intervals of the drift that hold it; and of optimizers that truly lose 0.05
nats to the largest size, those that were found to.
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Literal
from unittest.mock import patch

import numpy as np

from benchmarks.result_file import write_result
from benchmarks.verdicts import LOSS, NAMES, Optimizer, Runs, conducted, share, specification
from benchmarks.verdicts import World as Cell
from orchestrator.analysis.laws import fit as fits
from orchestrator.analysis.laws.fit import fit_experiments
from orchestrator.kinds.comparison import ComparisonSpec
from orchestrator.kinds.scaling import TransferredSpec
from orchestrator.records import ExperimentWithRuns
from tests.factories.comparison import experiment_record, run_record

SIZES = tuple(round(10**6 * 2.0**place) for place in range(6))
TOKENS = 10**9
GAP = 0.05
"""Nats that the worse optimizer loses from the smallest size to the largest."""
DRAWS = 200


@dataclass(frozen=True, kw_only=True)
class World:
    """How rates matter, how they move with size, and how they are tuned."""

    name: str
    tuning: Literal["each size", "untuned", "kept"]
    moves: tuple[float, float]
    """Of the best rates, in factors of two from one size to the next: the baseline's, and the other's."""
    basin: str = "flat"
    rates: int = 5

    def cell(self) -> Cell:
        """A size by itself."""
        tuned_first = self.tuning != "untuned"
        return Cell(
            basin=self.basin, rates=self.rates, tuning_seeds=3 if tuned_first else 0, seeds=5 if tuned_first else 3
        )


@dataclass(kw_only=True)
class Tally:
    """What became of one world's experiments."""

    experiments: int = 0
    drifts: int = 0
    apart: int = 0
    typical_apart: int = 0
    no_verdict: int = 0
    open_cells: int = 0
    cells: int = 0
    held: int = 0
    intervals: int = 0
    found: int = 0
    worse: int = 0

    def shares(self) -> dict[str, float | None]:
        """The figures of the table."""
        return {
            "false_drift": share(self.drifts, self.experiments),
            "false_band": share(self.apart, self.experiments),
            "false_typical": share(self.typical_apart, self.experiments),
            "open_cells": share(self.open_cells, self.cells),
            "no_verdict": share(self.no_verdict, self.experiments),
            "coverage": share(self.held, self.intervals),
            "power": share(self.found, self.worse),
        }


def law(parameters: int) -> float:
    """Nats at the best rate."""
    return float(1.8 + 50.0 * parameters**-0.25)


def measured(world: World, gap: float, random: np.random.Generator) -> list[ExperimentWithRuns]:
    """The comparison of each size, tuned and judged."""
    cell = world.cell()
    spec = specification(cell)
    template = run_record(spec.first_runs()[0], 0, LOSS, "e")
    starts = random.uniform(-0.5, 0.5, 2)
    found: list[ExperimentWithRuns] = []
    kept: list[float] = []
    for place, parameters in enumerate(SIZES):
        runs = Runs(cell, random)
        truths = [
            Optimizer(
                basin=world.basin,
                curvature=0.003 if world.basin == "flat" else 0.02,
                slope=0.0,
                best=float(starts[of]) + world.moves[of] * place,
                shift=law(parameters) - LOSS + of * gap * place / (len(SIZES) - 1),
                spike_share=0.0,
            )
            for of in (0, 1)
        ]
        comparison = spec if world.tuning != "kept" or not kept else transferred(spec, kept)
        records = []
        for run in conducted(comparison, truths, runs, template):
            told = run.result and run.result.model_copy(update={"parameters": parameters, "tokens": TOKENS})
            records.append(run.model_copy(update={"result": told}))
        if not kept:
            kept = [next(run.lr for run in reversed(records) if run.candidate == mine) for mine in NAMES[:2]]
        # One experiment where rates are taken over, whose cells are told apart by their specifications.
        experiment = experiment_record(comparison, len(records), "e" if world.tuning == "kept" else f"e{place}")
        found.append((experiment.model_copy(update={"spec_hash": f"size {place}"}), tuple(records)))
    return found


def transferred(spec: ComparisonSpec, rates: Sequence[float]) -> TransferredSpec:
    """A larger size that takes over the rates of the smallest one."""
    candidates = tuple(
        each.model_copy(update={"learning_rates": (rate,)}) for each, rate in zip(spec.candidates, rates, strict=True)
    )
    fields = {name: getattr(spec, name) for name in type(spec).model_fields}
    own = {"candidates": candidates, "tuning": None, "rates_from": spec.workload.model, "rule": "kept"}
    return TransferredSpec.model_construct(**{**fields, **own})


def simulate(world: World, experiments: int, seed: int = 0) -> Tally:
    """So many experiments of equal optimizers, and as many of such that drift apart."""
    tally = Tally()
    for gap in (0.0, GAP):
        random = np.random.default_rng([seed, round(1000 * gap), *world.name.encode()])
        for _ in range(experiments):
            with patch.object(fits, "_curves", lambda *_: ()):  # curves are the same intervals once more
                report = fit_experiments(measured(world, gap, random), form="n", draws=DRAWS)
            baseline, mine = report.fits
            drift = mine.drift
            if drift is not None:
                low, high = drift.change.low, drift.change.high
                tally.intervals += 1
                tally.held += (low is None or low <= gap) and (high is None or gap <= high)
            shown = drift is not None and drift.p_value is not None and drift.p_value < 0.05
            if gap:
                tally.worse += 1
                tally.found += bool(shown and drift is not None and drift.change.value > 0)
                continue
            tally.experiments += 1
            tally.drifts += shown
            tally.no_verdict += drift is None or drift.rate_is_open
            bands = [each.difference for each in mine.loss_differences]
            tally.apart += any((each.low or 0) > 0 or (each.high or 0) < 0 for each in bands)
            if mine.typical_difference is not None:
                typical = mine.typical_difference.difference
                tally.typical_apart += (typical.low or 0) > 0 or (typical.high or 0) < 0
            points = [*baseline.points, *mine.points]
            tally.cells += len(points)
            tally.open_cells += sum(point.open_lr is not None for point in points)
    return tally


def worlds() -> Iterator[World]:
    """What the table has."""
    for tuning in ("each size", "untuned", "kept"):
        for basin in ("flat", "skew"):
            usual = World(name="", tuning=tuning, moves=(0.0, 0.0), basin=basin)
            for moves in ((0.0, 0.0), (-0.3, -0.3), (0.0, -0.3), (0.0, -0.6), (-0.6, 0.0)):
                named = f"{basin}, {tuning}, best rates move by {moves[0]:g} and {moves[1]:g}"
                yield replace(usual, name=named, moves=moves)
    yield World(name="skew, each size, 3 rates", tuning="each size", moves=(0.0, -0.3), basin="skew", rates=3)
    yield World(name="kink, each size", tuning="each size", moves=(0.0, -0.3), basin="kink")


def main() -> None:
    """Simulate, print, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--experiments", type=int, default=100, help="of equal optimizers in each world")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="write the result here")
    given = parser.parse_args()
    begun, found = perf_counter(), []
    heads = ("drift", "band", "typical", "open cells", "no verdict", "covered", "power")
    print(f"{'world':52}" + "".join(f"{head:>12}" for head in heads), flush=True)
    for world in worlds():
        shares = simulate(world, given.experiments, given.seed).shares()
        found.append(asdict(world) | shares)
        cells = ("–" if value is None else f"{100 * value:.1f}" for value in shares.values())
        print(f"{world.name:52}" + "".join(f"{cell:>12}" for cell in cells), flush=True)
    print(f"{perf_counter() - begun:.0f} s")
    if given.json:
        write_result(given.json, "tuned_laws", {"experiments": given.experiments, "worlds": found})


if __name__ == "__main__":
    main()
