"""What the intervals of a scaling law hold, and how long a fit takes.

    OMP_NUM_THREADS=1 python -m benchmarks.scaling_fit --json benchmarks/results/scaling-fit.json

Coverage: two optimizers with one and the same planted law, run at model sizes × token budgets × seeds. Each cell (a
size at a budget) of each optimizer is off its law by an error that all of its seeds share, as what its tuning missed;
in some worlds all budgets of a size share it instead. The validation text flatters one of the two, at all sizes alike
and at each by itself. Seeds come on top, most of their noise common to both optimizers.
Every data set goes through `fit_experiments`, as `adapm-bench fit` does. The table has every interval that is printed:
the share that hold the planted value, and how often these equal optimizers were said to drift apart with size, to
differ at any size, or to have other exponents. What no law was found in predicts and compares nothing, and is counted
apart.

Time: `ours` is `orchestrator/analysis/laws/model.py`: all starts, then all bootstrap samples, each as one batch.
`scipy` is what one writes first: L-BFGS from the same starts, then from the fit for each sample, with the gradient
given. Time is processor time of this process, so that other programs on the machine count little. The two must agree:
printed is the largest difference of any interval's end, as a share of the interval.
"""

import argparse
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from time import process_time
from unittest.mock import patch

import numpy as np
from scipy.optimize import minimize
from scipy.special import logsumexp

from benchmarks.result_file import processor, write_result
from orchestrator.analysis.comparison import evaluation_error
from orchestrator.analysis.laws import fit as fits
from orchestrator.analysis.laws import model
from orchestrator.analysis.laws.fit import fit_experiments
from orchestrator.analysis.laws.model import FORMS, Law, LawForm, Observations
from orchestrator.analysis.laws.records import Estimate, FitReport, FormName
from orchestrator.analysis.sequential import Array
from orchestrator.records import ExperimentWithRuns
from tests.factories.comparison import records
from tests.factories.stores import comparison_spec, result
from worker.cpus import usable_cpus

PLANTED = {"E": 1.69, "A": 406.4, "alpha": 0.34, "B": 410.7, "beta": 0.28}
"""Hoffmann et al., arXiv 2203.15556, equation 10."""
NOISE = 0.003
"""Of the log loss between seeds, common to both optimizers …"""
OWN_NOISE = 0.001
"""… and of each by itself."""
SHARED = 0.0017
"""Of the log loss, shared by the seeds of a cell: what tuning missed in simulated grids."""
TEXT_SHARED = 0.5
"""By how much a sequence flatters one optimizer, it does so to some part at every size."""
BEYOND = 3
"""A loss is predicted at so many times the largest size."""


@dataclass(frozen=True, kw_only=True)
class World:
    """A design, and the law that both optimizers follow in it."""

    name: str
    form: FormName
    law: dict[str, float]
    cells: tuple[tuple[int, int], ...]
    """Parameters and tokens."""
    seeds: int
    shared: float = SHARED
    shared_by_size: float = 0.0
    """Of the log loss, shared by all budgets of a size."""
    text_shared: float = TEXT_SHARED
    """Of the variance by the validation text, what is common to all cells."""
    tailed: bool = False
    """Whether the cells' shared errors are Student's t with 3 degrees of freedom, of the same variance."""

    def loss(self, parameters: float, tokens: float) -> float:
        """Nats, by the law."""
        size_term = self.law["A"] * parameters ** -self.law["alpha"] if "A" in self.law else 0.0
        tokens_term = self.law["B"] * tokens ** -self.law["beta"] if "B" in self.law else 0.0
        return self.law.get("E", 0.0) + size_term + tokens_term


def line(count: int) -> tuple[tuple[int, int], ...]:
    """Sizes over three decades and a half, each at its budget."""
    return tuple((round(n), round(20 * n)) for n in np.geomspace(1e6, 3e9, count))


def grid(sizes: int, budgets: int) -> tuple[tuple[int, int], ...]:
    """Every size at every budget."""
    return tuple(
        (round(n), round(d)) for n in np.geomspace(4e7, 1.5e9, sizes) for d in np.geomspace(1e9, 3e10, budgets)
    )


FLOORED, STRAIGHT = {"E": 1.8, "A": 50.0, "alpha": 0.25}, {"A": 12.0, "alpha": 0.08}
WORLDS = (
    World(name="4 sizes, 5 seeds", form="n", law=FLOORED, cells=line(4), seeds=5),
    World(name="5 sizes, 3 seeds", form="n", law=FLOORED, cells=line(5), seeds=3),
    World(name="7 sizes, 5 seeds", form="n", law=FLOORED, cells=line(7), seeds=5),
    World(name="7 sizes, 5 seeds, t3", form="n", law=FLOORED, cells=line(7), seeds=5, tailed=True),
    World(name="7 sizes, 5 seeds, text alike", form="n", law=FLOORED, cells=line(7), seeds=5, text_shared=1.0),
    World(name="4 sizes, 5 seeds", form="n0", law=STRAIGHT, cells=line(4), seeds=5),
    World(name="6 sizes, 3 seeds", form="n0", law=STRAIGHT, cells=line(6), seeds=3),
    World(name="4 sizes × 3 budgets, 3 seeds", form="nd", law=PLANTED, cells=grid(4, 3), seeds=3),
    World(name="5 sizes × 4 budgets, 4 seeds", form="nd", law=PLANTED, cells=grid(5, 4), seeds=4),
    World(name="3 sizes × 3 budgets, 3 seeds", form="nd", law=PLANTED, cells=grid(3, 3), seeds=3),
    *(
        World(
            name=f"{sizes} sizes × {budgets} budgets, {seeds} seeds, by size",
            form="nd",
            law=PLANTED,
            cells=grid(sizes, budgets),
            seeds=seeds,
            shared=0.0,
            shared_by_size=SHARED,
        )
        for sizes, budgets, seeds in ((5, 4, 4), (3, 3, 3), (7, 3, 5))
    ),
)


@dataclass(kw_only=True)
class Coverage:
    """What of one world's data sets held."""

    form: str
    world: str
    datasets: int
    no_law: int = 0
    """Data sets in which one of the two has none."""
    held: dict[str, list[int]] = field(default_factory=dict)
    """Of each quantity: intervals that hold the planted value, and intervals."""
    compared: int = 0
    drifts: int = 0
    """Data sets in which the two are said to drift apart …"""
    apart: int = 0
    """… in which the band of their losses leaves zero out at any size …"""
    other_exponents: int = 0
    """… or in which an exponent is said to differ."""

    def count(self, name: str, estimate: Estimate, planted: float) -> None:
        """One interval, where there is one."""
        if estimate.low is not None and estimate.high is not None:
            held = self.held.setdefault(name, [0, 0])
            held[0] += estimate.low <= planted <= estimate.high
            held[1] += 1

    def add(self, report: FitReport, world: World) -> None:
        """One data set's report."""
        baseline, mine = report.fits
        self.no_law += any(each.no_law is not None for each in report.fits)
        for name, estimate in baseline.coefficients.items():
            self.count(name, estimate, world.law[name])
        for said in baseline.predictions:
            self.count("predicted loss", said.loss, world.loss(said.parameters, said.tokens))
        if (left := baseline.held_out) is not None:
            tokens = max(point.tokens for point in baseline.points if point.parameters == left.parameters)
            self.count("largest left out", left.predicted, world.loss(left.parameters, tokens))
        for each in mine.data_efficiency:
            if each.ratio is not None:
                # A bound that is missing is infinitely far away.
                low, high = each.low or 0.0, np.inf if each.high is None else each.high
                self.count("data efficiency", Estimate(value=each.ratio, low=low, high=high), 1.0)
        for exponent in mine.against_baseline:
            self.count(f"{exponent.exponent} apart", exponent.difference, 0.0)
        if (typical := mine.typical_difference) is not None:
            found = typical.difference
            self.count("typical difference", Estimate(value=found.mean, low=found.low, high=found.high), 0.0)
        if mine.drift is not None:
            self.compared += 1
            self.count("drift", mine.drift.change, 0.0)
            self.drifts += mine.drift.p_value is not None and mine.drift.p_value < 0.05
            bands = [each.difference for each in mine.loss_differences]
            apart = any((each.low or 0) > 0 or (each.high or 0) < 0 for each in bands)
            self.count("all losses apart", Estimate(value=0.0, low=float(apart), high=1.0), 0.0)
            self.apart += apart
            self.other_exponents += any((each.p_value or 1) < 0.05 for each in mine.against_baseline)


def covered(world: World, datasets: int, draws: int, seed: int = 0) -> Coverage:
    """So many data sets of one world through the whole fit."""
    found = Coverage(form=FORMS[world.form].formula, world=world.name, datasets=datasets)
    ahead = BEYOND * max(parameters for parameters, _ in world.cells)
    # Curves are the same intervals once more.
    with patch.object(fits, "_curves", lambda *_: ()):
        for measured in planted(world, datasets, seed):
            found.add(fit_experiments(measured, form=world.form, predict=[(ahead, None)], draws=draws), world)
    return found


def planted(world: World, datasets: int, seed: int) -> Iterator[list[ExperimentWithRuns]]:
    """Data sets: a comparison at each cell, whose runs have ended at the law's loss and their errors."""
    random = np.random.default_rng(seed)
    spec = comparison_spec(optimizers=("adamw", "adapm"), seeds=range(world.seeds))
    bare = [records(spec, lambda *_run: result(), experiment=f"e{place}") for place in range(len(world.cells))]
    for _ in range(datasets):
        measured: list[ExperimentWithRuns] = []
        text = evaluation_error(spec.workload)
        of_text = random.normal(0, text * np.sqrt(world.text_shared))
        by_size = {size: random.normal(0, world.shared_by_size, 2) for size in {size for size, _ in world.cells}}
        for (parameters, tokens), (experiment, runs) in zip(world.cells, bare, strict=True):
            common = random.normal(0, NOISE, world.seeds)
            error = random.standard_t(3, 2) / np.sqrt(3) if world.tailed else random.normal(0, 1, 2)
            error = world.shared * error + by_size[parameters]
            of_cell = random.normal(0, text * np.sqrt(1 - world.text_shared))
            ended = []
            for run in runs:
                off = common[run.seed] + random.normal(0, OWN_NOISE) + error[int(run.candidate == "adapm")]
                loss = world.loss(parameters, tokens) * float(np.exp(off))
                loss += float(of_text + of_cell) * (run.candidate == "adapm")
                told = {"final_val_loss": loss, "parameters": parameters, "tokens": tokens}
                ended.append(run.model_copy(update={"result": result().model_copy(update=told)}))
            measured.append((experiment, tuple(ended)))
        yield measured


@dataclass(frozen=True, kw_only=True)
class Timing:
    """One form over one data set."""

    form: str
    cells: int
    draws: int
    ours_seconds: float
    scipy_seconds: float
    times_faster: float
    largest_disagreement: float
    """Of a 95 % interval's end, as a share of the interval's width."""


def drawn(sizes: int, budgets: int) -> Observations:
    """Cells whose losses follow Hoffmann's law."""
    random = np.random.default_rng(0)
    n, d = np.array(grid(sizes, budgets), dtype=np.float64).T
    losses = PLANTED["E"] + PLANTED["A"] * n ** -PLANTED["alpha"] + PLANTED["B"] * d ** -PLANTED["beta"]
    return Observations(parameters=n, tokens=d, losses=losses * np.exp(random.normal(0, NOISE, n.size)))


def ours(form: LawForm, cells: Observations, draws: int) -> tuple[Law, Law]:
    """The fit and its bootstrap, as the service does it."""
    law = model.fit(form, cells)
    return law, model.bootstrap(law, cells, draws, seed=1)


def plain_scipy(form: LawForm, cells: Observations, draws: int) -> tuple[Law, Law]:
    """The same, one `minimize` after another."""
    centre = cells.logs().mean(axis=0)
    columns = [np.zeros(cells.losses.size)] * form.floor + [(cells.logs() - centre)[:, each] for each in form.variables]
    x, y = np.stack(columns, axis=1), np.log(cells.losses)
    count = x.shape[1]

    def terms(theta: Array) -> Array:
        found = np.tile(theta[:count], (len(x), 1))
        found[:, form.floor :] -= theta[count:] * x[:, form.floor :]
        return found

    def objective(theta: Array, target: Array) -> tuple[float, Array]:
        each = terms(theta)
        fitted = logsumexp(each, axis=1)
        residuals = fitted - target
        size = np.abs(residuals)
        small = np.minimum(size, model.HUBER_DELTA)
        shares = np.exp(each - fitted[:, None])
        jacobian = np.concatenate([shares, -shares[:, form.floor :] * x[:, form.floor :]], axis=1)
        pull = np.clip(residuals, -model.HUBER_DELTA, model.HUBER_DELTA)
        return float((small * (size - small / 2)).sum()), jacobian.T @ pull

    def descended(start: Array, target: Array) -> tuple[float, Array]:
        found = minimize(
            objective, start, args=(target,), jac=True, method="L-BFGS-B", options={"ftol": 1e-15, "gtol": 1e-12}
        )
        return float(found.fun), found.x

    starts = model._starts(form, cells.losses)
    theta = min((descended(start, y) for start in starts), key=lambda each: each[0])[1]
    law = Law(form=form, theta=theta, centre=centre)
    drawn = np.stack([descended(theta, sample)[1] for sample in model.samples(law, cells, draws, seed=1)])
    return law, Law(form=form, theta=drawn, centre=centre)


def timed(
    fit: Callable[[LawForm, Observations, int], tuple[Law, Law]], form: LawForm, cells: Observations, draws: int
) -> tuple[float, tuple[Law, Law]]:
    """Processor seconds, and what was fitted."""
    begun = process_time()
    found = fit(form, cells, draws)
    return process_time() - begun, found


def disagreement(form: LawForm, one: Law, other: Law) -> float:
    """The largest difference between the ends of the exponents' 95 % intervals, by the interval's width."""
    names = [model.LETTERS[variable][1] for variable in form.variables]
    found = []
    for name in names:
        a, b = (np.quantile(law.coefficients()[name], [0.025, 0.975]) for law in (one, other))
        found.append(float(np.abs(a - b).max() / (b[1] - b[0])))
    return max(found)


def measure(name: FormName, cells: Observations, draws: int, rounds: int) -> Timing:
    """Ours over some rounds, the loop once: it takes long enough."""
    form = FORMS[name]
    times = [timed(ours, form, cells, draws) for _ in range(rounds)]
    loop_seconds, (_, loop_draws) = timed(plain_scipy, form, cells, draws)
    seconds = median(each for each, _ in times)
    return Timing(
        form=form.formula,
        cells=int(cells.losses.size),
        draws=draws,
        ours_seconds=round(seconds, 3),
        scipy_seconds=round(loop_seconds, 2),
        times_faster=round(loop_seconds / seconds, 1),
        largest_disagreement=round(disagreement(form, times[0][1][1], loop_draws), 4),
    )


def main() -> None:
    """Measure, print, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", type=int, default=150, help="of each world")
    parser.add_argument("--coverage-draws", type=int, default=200, help="bootstrap draws of each of these fits")
    parser.add_argument("--seed", type=int, default=0, help="of the data sets")
    parser.add_argument("--draws", type=int, default=1000, help="bootstrap draws of the fits that are timed")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="write the result here")
    given = parser.parse_args()
    coverage = []
    for world in WORLDS:
        found = covered(world, given.datasets, given.coverage_draws, given.seed)
        coverage.append(asdict(found))
        shares = ", ".join(f"{name} {held / of:.3f}" for name, (held, of) in found.held.items())
        print(
            f"{found.form}, {found.world}: {shares}; of {found.compared} equal pairs {found.drifts} drift, "
            f"{found.apart} lie apart, {found.other_exponents} differ in exponents; no law in {found.no_law}",
            flush=True,
        )
    model.fit(FORMS["n0"], drawn(3, 1))  # imports and first calls are not what is measured
    timings = [
        measure("n", drawn(6, 1), given.draws, given.rounds),
        measure("nd", drawn(5, 4), given.draws, given.rounds),
    ]
    for each in timings:
        print(
            f"{each.form}: {each.cells} cells, {each.draws} draws: {each.ours_seconds} s; plain scipy "
            f"{each.scipy_seconds} s ({each.times_faster} times); intervals differ by {each.largest_disagreement:.2%}"
        )
    if given.json:
        figures = {
            "machine": {"processor": processor(), "cores": usable_cpus(), "cores_used": 1},
            "errors": {
                "seeds": NOISE,
                "own": OWN_NOISE,
                "shared_by_a_cell_or_size": SHARED,
                "draws": given.coverage_draws,
            },
            "coverage": coverage,
            "target_seconds": 5.0,
            "fits": [asdict(each) for each in timings],
        }
        write_result(given.json, "scaling_fit", figures)


if __name__ == "__main__":
    main()
