"""Scaling laws: a sum of power laws fitted to final losses, and its bootstrap. Pure functions on arrays.

    L(N)    = E + A N^-alpha               (also with E = 0: log-linear; and the same in D)
    L(N, D) = E + A N^-alpha + B D^-beta   (Hoffmann et al., "Training Compute-Optimal Large Language Models",
                                            arXiv 2203.15556, approach 3)

N: parameters, D: training tokens, L: nats. As there, a fit minimises Huber's loss of log L - LSE_k(c_k - gamma_k x_k),
the log-sum-exp over the terms with c = log E, log A, log B and x = log N, log D (centred), from a grid of starts.
MINPACK's Levenberg-Marquardt does it, on residuals of which half the squares are Huber's losses.

Bootstrap over cells (a model size at a token budget, the mean of its seeds): each draw adds W r / sqrt(n - p) to the
fitted log losses and is refitted from the fit itself; r are the n cells' residuals, p counts the coefficients, and W is
n × n standard normal, the same for all laws. So errors are normal, with the residuals' variance, and two laws of the
same cells keep what their residuals have in common: they are drawn as pairs. (Cells drawn with replacement are too few
sizes for a law, and residuals so drawn are too short-tailed.) n - p degrees of freedom make the quantiles Student's t.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from orchestrator.analysis import scipy_parts as sp
from orchestrator.analysis.laws.records import FormName
from orchestrator.analysis.sequential import Array
from orchestrator.analysis.statistics import normal_quantile, t_quantile
from orchestrator.records import SIGNIFICANCE

HUBER_DELTA = 1e-3
"""The delta of the Huber loss of log losses; Hoffmann et al., appendix D.2."""
MAX_EXPONENT = 3.0
"""Beyond any exponent that was ever reported (0.05 to 0.6): a fit that gets here found a cliff, not a law."""
START_EXPONENTS = (0.05, 0.2, 0.5, 1.0)
START_FLOORS = (0.1, 0.4, 0.8)
"""E by the lowest loss. From all of these starts planted laws are found, and mostly from each."""
COLLINEAR = 0.98
"""Squared correlation of log N and log D from which on exponents vary seven times as much as of independent sizes and
budgets: 1 / sqrt(1 - 0.98)."""
SEED = 20_251_009
"""The seed of the bootstrap, so that the same runs give the same intervals."""


@dataclass(frozen=True, kw_only=True)
class LawForm:
    """A family of curves: the terms of the sum."""

    name: FormName
    formula: str
    floor: bool
    """Whether E is a term."""
    variables: tuple[int, ...]
    """The variable of each power-law term: 0 is N, 1 is D."""

    def size(self) -> int:
        """Return the number of coefficients."""
        return self.floor + 2 * len(self.variables)


FORMS: dict[FormName, LawForm] = {
    "n": LawForm(name="n", formula="L = E + A N^-alpha", floor=True, variables=(0,)),
    "n0": LawForm(name="n0", formula="L = A N^-alpha", floor=False, variables=(0,)),
    "d": LawForm(name="d", formula="L = E + B D^-beta", floor=True, variables=(1,)),
    "d0": LawForm(name="d0", formula="L = B D^-beta", floor=False, variables=(1,)),
    "nd": LawForm(name="nd", formula="L = E + A N^-alpha + B D^-beta", floor=True, variables=(0, 1)),
}
LETTERS = (("A", "alpha"), ("B", "beta"))
"""The names of the coefficient and the exponent of N and of D."""
Cell = tuple[int, int]
"""Parameters and tokens."""
SIZE, TOKENS = 0, 1
"""The places of N and D in a cell, and among a form's variables."""


def richest_form(cells: Sequence[Cell]) -> LawForm:
    """Return the form with the most coefficients that so many cells determine: fewer than sizes, budgets and cells."""
    sizes, budgets = (len(set(values)) for values in (zip(*cells, strict=True) if cells else ((), ())))
    if sizes >= 3 and budgets >= 3 and len(cells) > FORMS["nd"].size():
        squared_correlation = np.corrcoef(np.log(np.array(cells, dtype=np.float64)).T)[0, 1] ** 2
        if squared_correlation < COLLINEAR:
            return FORMS["nd"]
    if sizes == 1 and budgets > 1:
        return FORMS["d" if budgets > FORMS["d"].size() else "d0"]
    return FORMS["n" if sizes > FORMS["n"].size() else "n0"]


@dataclass(frozen=True, kw_only=True)
class Law:
    """A fitted form; `theta` has log coefficients (of centred variables), then exponents."""

    form: LawForm
    theta: Array
    """(..., p): one law, or one for each bootstrap draw."""
    centre: Array
    """Means of log N and log D that the variables are centred by."""

    def coefficients(self) -> dict[str, Array]:
        """Return E, A, alpha, B, beta, as far as the form has them, in nats, parameters and tokens."""
        terms = self.form.floor + len(self.form.variables)
        values: dict[str, Array] = {"E": np.exp(self.theta[..., 0])} if self.form.floor else {}
        for position, variable in enumerate(self.form.variables):
            coefficient, exponent = LETTERS[variable]
            gamma = self.theta[..., terms + position]
            values[coefficient] = np.exp(self.theta[..., self.form.floor + position] + gamma * self.centre[variable])
            values[exponent] = gamma
        return values

    def losses(self, parameters: float, tokens: float) -> Array:
        """Return the predicted loss at N and D, for each member of the batch."""
        x = _variables(self.form, np.log([[parameters, tokens]]) - self.centre)
        return np.asarray(np.exp(_log_losses(_terms(self.form, self.theta, x))[..., 0]))


def fit(form: LawForm, cells: Sequence[Cell], losses: Sequence[float], draws: int) -> tuple[Law, Law]:
    """Return the law that fits the cells best, and those of so many bootstrap draws. Raises `ValueError` for a loss
    that is not positive and finite."""
    values, logs = np.array(losses, dtype=np.float64), np.log(np.array(cells, dtype=np.float64))
    if not (np.isfinite(values).all() and (values > 0).all()):
        raise ValueError("a scaling law is fitted to the logarithms of losses; leave out those that are not positive")
    centre = logs.mean(axis=0)
    x, y = _variables(form, logs - centre), np.log(values)
    theta = min((_descend(form, start, x, y) for start in _starts(form, values)), key=lambda descent: descent[1])[0]
    fitted = _log_losses(_terms(form, theta, x))
    mixtures = np.random.default_rng(SEED).standard_normal((draws, len(y), len(y)))
    drawn = fitted + mixtures @ (y - fitted) / np.sqrt(max(len(y) - form.size(), 1))
    thetas = np.array([_descend(form, theta, x, losses_drawn)[0] for losses_drawn in drawn]).reshape(draws, form.size())
    return Law(form=form, theta=theta, centre=centre), Law(form=form, theta=thetas, centre=centre)


def interval(
    value: float, draws: Array, degrees: int, *, comparisons: float = 1, shared_error: float = 0.0
) -> tuple[float | None, float | None]:
    """Return the ends of the 95 % interval of a quantity, one of so many at once: the draws' standard error on each
    side, times the quantile of Student's t. `shared_error`: standard error that no cell shows because all share it,
    that of the validation text. An end that the draws do not bound is None, as both are without degrees of freedom."""
    if degrees < 1 or np.isnan(draws).any() or not np.isfinite(value):
        return None, None
    tail, tail_of_draws = SIGNIFICANCE / comparisons / 2, SIGNIFICANCE / 2
    edges = np.quantile(draws, [tail_of_draws, 1 - tail_of_draws], method="inverted_cdf")
    t, z = (t_quantile(degrees, 1 - tail) / normal_quantile(1 - tail_of_draws), normal_quantile(1 - tail))
    lower_width, upper_width = (float(np.hypot(t * (edge - value), z * shared_error)) for edge in edges)
    return (value - lower_width if np.isfinite(lower_width) else None), (
        value + upper_width if np.isfinite(upper_width) else None
    )


def _descend(form: LawForm, start: Array, x: Array, y: Array) -> tuple[Array, float]:
    """Return the coefficients at the minimum that lies downhill from a start, and twice Huber's loss there."""

    def residuals(theta: Array) -> Array:
        error = _log_losses(_terms(form, theta, x)) - y
        size = np.abs(error)
        linear_part = np.sqrt(HUBER_DELTA * np.maximum(2 * size - HUBER_DELTA, HUBER_DELTA))
        return np.asarray(np.where(size <= HUBER_DELTA, error, np.sign(error) * linear_part))

    def jacobian(theta: Array) -> Array:
        terms = _terms(form, theta, x)
        log_losses = _log_losses(terms)
        size = np.abs(log_losses - y)
        slope = HUBER_DELTA / np.sqrt(HUBER_DELTA * np.maximum(2 * size - HUBER_DELTA, HUBER_DELTA))
        shares = np.exp(terms - log_losses[:, None])
        inside = np.abs(theta[x.shape[1] :]) < MAX_EXPONENT
        derivatives = np.concatenate([shares, -(shares * x)[:, form.floor :] * inside], axis=1)
        return np.asarray(derivatives * slope[:, None])

    # `least_squares` takes five times as long.
    theta, _, info, _, _ = sp.optimize.leastsq(residuals, start, Dfun=jacobian, full_output=True)
    theta[x.shape[1] :] = np.clip(theta[x.shape[1] :], -MAX_EXPONENT, MAX_EXPONENT)
    return np.asarray(theta), float(np.sum(info["fvec"] ** 2))


def _terms(form: LawForm, theta: Array, x: Array) -> Array:
    """Return the logarithm of each term: ... × n × K."""
    count = x.shape[1]
    terms = np.repeat(theta[..., None, :count], len(x), axis=-2)
    exponents = np.clip(theta[..., None, count:], -MAX_EXPONENT, MAX_EXPONENT)
    terms[..., form.floor :] -= exponents * x[:, form.floor :]
    return terms


def _log_losses(terms: Array) -> Array:
    largest = terms.max(axis=-1, keepdims=True)
    return np.asarray((largest + np.log(np.exp(terms - largest).sum(axis=-1, keepdims=True)))[..., 0])


def _variables(form: LawForm, centred: Array) -> Array:
    """Return the variable of each term, n × K; 0 for E."""
    columns = [np.zeros(len(centred))] * form.floor + [centred[:, variable] for variable in form.variables]
    return np.stack(columns, axis=1)


def _starts(form: LawForm, losses: Array) -> list[Array]:
    """Return every combination of exponents and of E; the coefficients follow, since variables are centred."""
    count = len(form.variables)
    starts = []
    for fraction in START_FLOORS if form.floor else (0.0,):
        floor = fraction * losses.min()
        logs = [*([np.log(floor)] if form.floor else []), *[np.log((losses.mean() - floor) / count)] * count]
        for exponents in np.stack(np.meshgrid(*[START_EXPONENTS] * count), axis=-1).reshape(-1, count):
            starts.append(np.array([*logs, *exponents]))
    return starts
