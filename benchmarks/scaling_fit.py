"""How long a scaling law with its bootstrap takes on one core, beside the same fits in a plain loop over scipy.

    OMP_NUM_THREADS=1 python -m benchmarks.scaling_fit --draws 1000 --json benchmarks/results/scaling-fit.json

Data are drawn from Hoffmann's law: model sizes × token budgets × seeds. `ours` is `orchestrator/scaling.py`: all
starts, then all bootstrap samples, each as one batch. `scipy` is what one writes first: L-BFGS from the same
starts, then from the fit for each sample, with the gradient given. Time is processor time of this process, so that
other programs on the machine count little. The two must agree: the table has the largest difference of any interval's
end, as a share of the interval.
"""

import argparse
import json
import os
import platform
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from time import process_time

import numpy as np
from scipy.optimize import minimize
from scipy.special import logsumexp

from orchestrator import scaling
from orchestrator.scaling import FORMS, Array, Form, FormName, Law, Observations

PLANTED = {"E": 1.69, "A": 406.4, "alpha": 0.34, "B": 410.7, "beta": 0.28}
"""Hoffmann et al., arXiv 2203.15556, equation 10."""
NOISE = 0.003
"""Of the log loss between seeds."""
Indices = np.ndarray[tuple[int, int], np.dtype[np.int64]]


@dataclass(frozen=True, kw_only=True)
class Timing:
    """One form over one data set."""

    form: str
    runs: int
    draws: int
    ours_seconds: float
    scipy_seconds: float
    times_faster: float
    largest_disagreement: float
    """Of a 95 % interval's end, as a share of the interval's width."""


def drawn(sizes: int, budgets: int, seeds: int) -> Observations:
    """Runs whose losses follow Hoffmann's law."""
    random = np.random.default_rng(0)
    grid = np.array([(n, d) for n in np.geomspace(4e7, 1.5e9, sizes) for d in np.geomspace(1e9, 3e10, budgets)])
    n, d = np.repeat(grid, seeds, axis=0).T
    losses = PLANTED["E"] + PLANTED["A"] * n ** -PLANTED["alpha"] + PLANTED["B"] * d ** -PLANTED["beta"]
    return Observations(parameters=n, tokens=d, losses=losses * np.exp(random.normal(0, NOISE, n.size)))


def ours(form: Form, runs: Observations, indices: Indices) -> tuple[Law, Law]:
    """The fit and its bootstrap, as the service does it."""
    law = scaling.fit(form, runs)
    return law, scaling.bootstrap(law, runs, indices)


def plain_scipy(form: Form, runs: Observations, indices: Indices) -> tuple[Law, Law]:
    """The same, one `minimize` after another."""
    centre = runs.logs().mean(axis=0)
    columns = [np.zeros(runs.losses.size)] * form.floor + [(runs.logs() - centre)[:, each] for each in form.variables]
    x, y = np.stack(columns, axis=1), np.log(runs.losses)
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
        small = np.minimum(size, scaling.HUBER_DELTA)
        shares = np.exp(each - fitted[:, None])
        jacobian = np.concatenate([shares, -shares[:, form.floor :] * x[:, form.floor :]], axis=1)
        pull = np.clip(residuals, -scaling.HUBER_DELTA, scaling.HUBER_DELTA)
        return float((small * (size - small / 2)).sum()), jacobian.T @ pull

    def descended(start: Array, target: Array) -> tuple[float, Array]:
        found = minimize(
            objective, start, args=(target,), jac=True, method="L-BFGS-B", options={"ftol": 1e-15, "gtol": 1e-12}
        )
        return float(found.fun), found.x

    starts = scaling._starts(form, runs.losses)
    theta = min((descended(start, y) for start in starts), key=lambda each: each[0])[1]
    fitted = logsumexp(terms(theta), axis=1)
    residuals = y - fitted
    spread = np.sqrt(y.size / max(y.size - form.size(), 1))
    samples = fitted + spread * (residuals - residuals.mean())[indices]
    draws = np.stack([descended(theta, sample)[1] for sample in samples])
    return Law(form=form, theta=theta, centre=centre), Law(form=form, theta=draws, centre=centre)


def timed(
    fit: Callable[[Form, Observations, Indices], tuple[Law, Law]], form: Form, runs: Observations, indices: Indices
) -> tuple[float, tuple[Law, Law]]:
    """Processor seconds, and what was fitted."""
    begun = process_time()
    found = fit(form, runs, indices)
    return process_time() - begun, found


def disagreement(form: Form, one: Law, other: Law) -> float:
    """The largest difference between the ends of the exponents' 95 % intervals, by the interval's width."""
    names = [scaling.LETTERS[variable][1] for variable in form.variables]
    found = []
    for name in names:
        a, b = (np.quantile(law.coefficients()[name], [0.025, 0.975]) for law in (one, other))
        found.append(float(np.abs(a - b).max() / (b[1] - b[0])))
    return max(found)


def measure(name: FormName, runs: Observations, draws: int, rounds: int) -> Timing:
    """Ours over some rounds, the loop once: it takes long enough."""
    form = FORMS[name]
    indices = np.random.default_rng(1).integers(0, runs.losses.size, (draws, runs.losses.size))
    times = [timed(ours, form, runs, indices) for _ in range(rounds)]
    loop_seconds, (_, loop_draws) = timed(plain_scipy, form, runs, indices)
    seconds = median(each for each, _ in times)
    return Timing(
        form=form.formula,
        runs=int(runs.losses.size),
        draws=draws,
        ours_seconds=round(seconds, 3),
        scipy_seconds=round(loop_seconds, 2),
        times_faster=round(loop_seconds / seconds, 1),
        largest_disagreement=round(disagreement(form, times[0][1][1], loop_draws), 4),
    )


def main() -> None:
    """Measure, print, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="write the result here")
    given = parser.parse_args()
    scaling.fit(FORMS["n0"], drawn(3, 1, 2))  # imports and first calls are not what is measured
    found = [
        measure("n", drawn(6, 1, 5), given.draws, given.rounds),
        measure("nd", drawn(5, 4, 3), given.draws, given.rounds),
    ]
    for each in found:
        print(
            f"{each.form}: {each.runs} runs, {each.draws} draws: {each.ours_seconds} s; plain scipy "
            f"{each.scipy_seconds} s ({each.times_faster} times); intervals differ by {each.largest_disagreement:.2%}"
        )
    if given.json:
        machine = {"processor": platform.processor() or platform.machine(), "cores": os.cpu_count(), "cores_used": 1}
        text = json.dumps(
            {"machine": machine, "target_seconds": 5.0, "fits": [asdict(each) for each in found]}, indent=2
        )
        given.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
