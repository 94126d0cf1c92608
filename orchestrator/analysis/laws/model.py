"""Scaling laws: fit a sum of power laws to final losses, with bootstrap intervals. Pure functions on arrays.

    L(N)    = E + A N^-alpha               (also with E = 0: log-linear; and the same in D)
    L(N, D) = E + A N^-alpha + B D^-beta   (Hoffmann et al., "Training Compute-Optimal Large Language Models",
                                            arXiv 2203.15556, approach 3)

N: parameters, D: training tokens, L: nats. As there, a fit minimises the Huber loss (delta 1e-3) of log L - LSE_k(c_k -
gamma_k x_k), the log-sum-exp over the terms with c = log E, log A, log B and x = log N, log D. It begins from a grid of
starts, all of them descended at once by a batched Levenberg-Marquardt iteration with Huber's weights; L-BFGS polishes
the best. Logs are centred, which makes the coefficients nearly independent of the exponents.

What is observed is a cell, one model size at one token budget: its seeds share what its tuning missed, so that n counts
cells, and their mean is one loss.

Bootstrap: each draw adds to the fitted log losses a random mixture W r / sqrt(n - p) of the n residuals r, W n x n
standard normal, and is refitted from the fit itself. Errors so drawn are normal, with the residuals' own variance for p
coefficients; of two laws drawn with one W they have their residuals' covariance. (Residuals drawn with replacement are
bounded, and with three to five of them too short-tailed.) Percentile intervals of so few cells are too narrow; their
distances from the estimate are stretched by t_{n-p} / z, as a t-interval stretches a normal one.

Cells of one size may share an error, whatever their budget: a grid that misses that size's best rate, a kernel, an
initialisation. Where sizes have several budgets, each draw has its own share of the variance that is common to a size,
from the posterior given the residuals' squares between and within sizes; a priori every share from 0 to 1 is as likely.
The law itself takes up three degrees of freedom between sizes, so that few sizes leave much to the prior: of three, the
residuals say nothing. What intervals hold where budgets share an error is simulated in `benchmarks/scaling_fit.py`;
those that took cells for independent would be too narrow there.

Two laws are drawn together as the one's residuals, and the difference of both: what sizes share in the difference of
two optimizers is not what each of them has. Seeds are common to both and errors of tuning are not, so that large shares
are likely there: with k degrees of freedom between sizes the prior of the share s is (1 - s)^(1 / (1 + k) - 1).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from orchestrator.analysis.laws.records import FormName
from orchestrator.analysis.sequential import Array
from orchestrator.analysis.statistics import normal_quantile, t_quantile

chi_square_quantile = None

HUBER_DELTA = 1e-3
"""Of the log loss; Hoffmann et al., appendix D.2."""
MAX_EXPONENT = 3.0
"""Beyond any exponent that was ever reported (0.05 to 0.6): a fit that gets here found a cliff, not a law."""
SMALLEST_FLOOR = 1e-6
"""E below this fraction of the lowest loss is zero."""
START_EXPONENTS = (0.03, 0.07, 0.15, 0.3, 0.5, 0.8, 1.2)
START_FLOORS = (0.02, 0.3, 0.6, 0.85)
"""E as a fraction of the lowest loss."""
DESCENT_STEPS = 200
SHARE_STEPS = 1000
"""In which the posterior of the share that sizes have in common is taken."""
COLLINEAR = 0.98
"""Squared correlation of log N and log D beyond which their exponents cannot be told apart."""
CHI_STEPS = 200
"""In which the error of a standard error is taken."""
TOLERANCE = 1e-7
"""A member is done when its objective falls by less than this fraction, …"""
NUDGE = 1e-6
"""Of a cell's log loss, by which it is told where the law follows it: no law bends over so little."""
SMALLEST_SHARE = 1e-4
"""Of the largest singular value: what cells tell less of, such as a floor of zero, moves with none of them."""
SMALLEST_STEP = 1e-7
"""… or does not fall along a step as short as this, in units of a logarithm or an exponent."""


@dataclass(frozen=True, kw_only=True)
class LawForm:
    """One family of curves: which terms the sum has."""

    name: FormName
    formula: str
    floor: bool
    """Whether E is a term."""
    variables: tuple[int, ...]
    """The variable of each power-law term: 0 is N, 1 is D."""

    def size(self) -> int:
        """How many coefficients it has."""
        return self.floor + 2 * len(self.variables)


FORMS: dict[FormName, LawForm] = {
    "n": LawForm(name="n", formula="L = E + A N^-alpha", floor=True, variables=(0,)),
    "n0": LawForm(name="n0", formula="L = A N^-alpha", floor=False, variables=(0,)),
    "d": LawForm(name="d", formula="L = E + B D^-beta", floor=True, variables=(1,)),
    "d0": LawForm(name="d0", formula="L = B D^-beta", floor=False, variables=(1,)),
    "nd": LawForm(name="nd", formula="L = E + A N^-alpha + B D^-beta", floor=True, variables=(0, 1)),
}
LETTERS = (("A", "alpha"), ("B", "beta"))
"""What the coefficient and the exponent of N and of D are called."""


def richest_form(places: Sequence[tuple[int, int]]) -> LawForm:
    """The richest one that so many cells can tell, each of so many parameters and tokens: more than coefficients."""
    cells = np.array(places, dtype=np.float64).reshape(-1, 2)
    sizes, budgets = len(set(cells[:, 0])), len(set(cells[:, 1]))
    if sizes >= 3 and budgets >= 3 and len(cells) > FORMS["nd"].size():
        together = np.corrcoef(np.log(cells).T)[0, 1] ** 2
        if together < COLLINEAR:
            return FORMS["nd"]
    if sizes == 1 and budgets > 1:
        return FORMS["d" if budgets > FORMS["d"].size() else "d0"]
    return FORMS["n" if sizes > FORMS["n"].size() else "n0"]


@dataclass(frozen=True, kw_only=True)
class Observations:
    """The cells that a law is fitted to: arrays of length n."""

    parameters: Array
    tokens: Array
    losses: Array
    """Final validation loss in nats, the mean over the cell's seeds; positive."""

    def logs(self) -> Array:
        """n × 2: log N and log D."""
        return np.log(np.stack([self.parameters, self.tokens], axis=1))


@dataclass(frozen=True, kw_only=True)
class Law:
    """A fitted form; `theta` has log coefficients (of centred variables), then exponents."""

    form: LawForm
    theta: Array
    """(..., p): one law, or one for each bootstrap draw."""
    centre: Array
    """Means of log N and log D that the variables are centred by."""

    def coefficients(self) -> dict[str, Array]:
        """E, A, alpha, B, beta, as far as the form has them, in nats, parameters and tokens."""
        terms = self.form.floor + len(self.form.variables)
        found: dict[str, Array] = {"E": np.exp(self.theta[..., 0])} if self.form.floor else {}
        for position, variable in enumerate(self.form.variables):
            coefficient, exponent = LETTERS[variable]
            gamma = self.theta[..., terms + position]
            log_coefficient = self.theta[..., self.form.floor + position] + gamma * self.centre[variable]
            found[coefficient] = np.exp(log_coefficient)
            found[exponent] = gamma
        return found

    def losses(self, parameters: float, tokens: float) -> Array:
        """The predicted loss at N and D, for each member of the batch."""
        x = _variables(self.form, np.log([[parameters, tokens]]) - self.centre)
        return np.exp(_log_losses(self.form, self.theta, x)[..., 0])


def fit(form: LawForm, cells: Observations) -> Law:
    """The law that fits the cells best. Raises `ValueError` for a loss that is not positive and finite."""
    if not (np.isfinite(cells.losses).all() and (cells.losses > 0).all()):
        raise ValueError("a scaling law is fitted to the logarithms of losses; leave out those that are not positive")
    centre = cells.logs().mean(axis=0)
    x, y = _variables(form, cells.logs() - centre), np.log(cells.losses)
    descended = descend(form, _starts(form, cells.losses), x, np.broadcast_to(y, (1, y.size)))
    best = descended[int(np.argmin(_objective(form, descended, x, y)))]
    return Law(form=form, theta=_polish(form, best, x, y), centre=centre)


def nudge(law: Law, cells: Observations) -> Law:
    """For each cell the law that least squares would make of this one, were the logarithm of that cell's loss lower by
    `NUDGE`. Huber's law follows one cell less, but all of them together as far."""
    x = _variables(law.form, cells.logs() - law.centre)
    _, jacobian = _losses_and_jacobian(law.form, law.theta[None], x)
    follows = np.linalg.pinv(jacobian[0], rcond=SMALLEST_SHARE)
    return Law(form=law.form, theta=law.theta - NUDGE * follows.T, centre=law.centre)


Fit = tuple[Law, Observations]
"""A law and the cells that it was fitted to."""


def bootstrap(law: Law, cells: Observations, draws: int, seed: int, beside: Fit | None = None) -> Law:
    """The laws of that many bootstrap samples; `beside` the draws of another law on the same cells."""
    x = _variables(law.form, cells.logs() - law.centre)
    starts = np.broadcast_to(law.theta, (draws, law.theta.size))
    drawn = samples(law, cells, draws, seed, beside)
    return Law(form=law.form, theta=descend(law.form, starts, x, drawn), centre=law.centre)


def samples(law: Law, cells: Observations, draws: int, seed: int, beside: Fit | None = None) -> Array:
    """Log losses, draws × n: the law's, with errors as large as the residuals. Where another law lies beside, with the
    errors that its draws have and those of the difference."""
    residuals = _residuals(law, cells)
    found = np.log(cells.losses) - residuals
    if beside is None:
        return np.asarray(found + _errors(law.form, cells, residuals, draws, seed))
    others = _residuals(*beside)
    of_both = _errors(law.form, cells, others, draws, seed)
    return np.asarray(found + of_both + _errors(law.form, cells, residuals - others, draws, seed, of_difference=True))


def _residuals(law: Law, cells: Observations) -> Array:
    return np.asarray(
        np.log(cells.losses) - _log_losses(law.form, law.theta, _variables(law.form, cells.logs() - law.centre))
    )


def _errors(
    form: LawForm, cells: Observations, residuals: Array, draws: int, seed: int, *, of_difference: bool = False
) -> Array:
    """draws × n, random mixtures of the residuals: each cell's own, and what the cells of a size share. Which residuals
    an error is mixed of hangs on the seed alone."""
    random, n = np.random.default_rng(seed), len(residuals)
    scaled = residuals / np.sqrt(max(n - form.size(), 1))
    own = random.standard_normal((draws, n, n))
    sizes, place = np.unique(cells.parameters, return_inverse=True)
    if 0 not in form.variables or len(sizes) == n:
        return np.asarray(own @ scaled)
    counts = np.bincount(place).astype(np.float64)
    between = (np.bincount(place, scaled) / counts)[place]
    within = scaled - between
    degrees_between = max(len(sizes) - form.floor - 2, 0)
    common = _common_variances(
        counts,
        float(between @ between),
        float(within @ within),
        (degrees_between, n - form.size()),
        1 / (1 + degrees_between) if of_difference else 1.0,
        draws,
    )
    # The size means' residuals are as large as common errors make them; the scale is that of a cell's own errors.
    mixed = within + between / np.sqrt(1 + common * counts.mean())[:, None]
    shared = np.einsum("bsn,bn->bs", random.standard_normal((draws, len(sizes), n)), mixed)
    return np.asarray(np.einsum("bmn,bn->bm", own, mixed) + (np.sqrt(common)[:, None] * shared)[:, place])


def _common_variances(
    counts: Array, between: float, within: float, degrees: tuple[int, int], prior: float, draws: int
) -> Array:
    """Each draw's variance of what a size's cells share, by that of a cell's own errors: quantiles of its posterior,
    given the squares of the residuals between and within sizes; `degrees` between sizes, and in all. The share s of the
    whole is a priori (1 - s)^(prior - 1)."""
    own = ((np.arange(SHARE_STEPS) + 0.5) / SHARE_STEPS) ** (1 / prior)
    common = (1 - own) / own
    inflation = 1 + common * counts.mean()
    squares = within + between / inflation + np.finfo(float).tiny
    logs = -degrees[0] / 2 * np.log(inflation) - degrees[1] / 2 * np.log(squares)
    mass = np.cumsum(np.exp(logs - logs.max())[::-1])
    return np.asarray(np.interp((np.arange(draws) + 0.5) / draws, mass / mass[-1], common[::-1]))


def stretched_interval(estimate: float, draws: Array, degrees: int) -> tuple[float | None, float | None]:
    """The 95 % interval from bootstrap draws, for `degrees` = n - p degrees of freedom; without a bound where draws
    beyond all of them are infinite, and without any where there are no degrees."""
    if degrees < 1 or np.isnan(draws).any() or not np.isfinite(estimate):
        return None, None
    stretch = t_quantile(degrees, 0.975) / normal_quantile(0.975)
    low, high = (
        float(estimate + stretch * (bound - estimate)) if np.isfinite(bound) else None
        for bound in np.quantile(draws, [0.025, 0.975], method="inverted_cdf")
    )
    return low, high


def simultaneous_intervals(
    estimates: Array, draws: Array, degrees: int
) -> list[tuple[float, float] | tuple[None, None]]:
    """95 % intervals of k quantities that hold together: estimates k, draws k × B. The half-width is as many standard
    errors as the largest deviation of 95 % of the draws, were each draw's standard error as uncertain as `degrees` say
    (for k = 1 Student's t); None without degrees."""
    if degrees < 1 or not np.isfinite(draws).all():
        return [(None, None)] * len(estimates)
    spread = np.array([spread_of(each) or 0.0 for each in draws])
    deviations = np.abs(draws - estimates[:, None]) / np.where(spread > 0, spread, 1.0)[:, None]
    shares = (np.arange(CHI_STEPS) + 0.5) / CHI_STEPS
    errors = np.sqrt([chi_square_quantile(degrees, share) / degrees for share in shares])
    half = float(np.quantile(deviations.max(axis=0)[:, None] / errors, 0.95)) * spread
    return [(float(value - by), float(value + by)) for value, by in zip(estimates, half, strict=True)]


def spread_of(draws: Array, comparisons: int = 1) -> float | None:
    """The bootstrap's standard error, by the range of the draws that an interval among so many has; None where the
    draws have none, or not all are finite. Draws with errors that sizes share have tails that no variance tells."""
    if draws.size < 2 or not np.isfinite(draws).all():
        return None
    tail = 0.025 / comparisons
    low, high = np.quantile(draws, [tail, 1 - tail])
    spread = float(high - low) / (2 * normal_quantile(1 - tail))
    return spread if spread > 0 else None


def effective_tokens(law: Law, parameters: float, loss: float | Array) -> Array:
    """D_eff: the tokens with which this law reaches `loss` at N; infinite where no amount does. One for each member,
    whose losses may be its own.

    Marin's data efficiency (Wen et al., "Fantastic Pretraining Optimizers and Where to Find Them", arXiv 2509.02046) is
    D_eff / D, with the baseline's law and the loss that another optimizer reaches with D tokens. Raises `ValueError`
    for a form without D.
    """
    if 1 not in law.form.variables:
        raise ValueError(f"{law.form.formula} says nothing of tokens; fit a form with D")
    found = law.coefficients()
    floor = found.get("E", np.zeros(law.theta.shape[:-1]))
    size_term = found["A"] * parameters ** -found["alpha"] if "A" in found else 0.0
    left = loss - floor - size_term
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        tokens = (found["B"] / left) ** (1 / found["beta"])
    return np.where((left > 0) & (found["beta"] > 0), tokens, np.inf)


# The model and its descent. B: members of a batch, n: cells, K: terms, p: coefficients.


def descend(form: LawForm, theta: Array, x: Array, y: Array) -> Array:
    """Minimise each member's Huber objective from its start: theta B × p, x n × K, y B × n (or 1 × n). Returns B × p.

    Levenberg-Marquardt on weighted least squares: a residual beyond delta weighs delta / |r|, which has the gradient of
    Huber's loss. A step that does not lower a member's objective is not taken, and its damping grows.
    """
    theta = _clip_to_bounds(form, np.array(theta, dtype=np.float64), y)
    y = np.broadcast_to(y, (len(theta), y.shape[1]))
    damping, value = np.full(len(theta), 1e-2), _objective(form, theta, x, y)
    active = np.arange(len(theta))
    for _ in range(DESCENT_STEPS):
        step = _step(form, theta[active], x, y[active], damping[active])
        trial = _clip_to_bounds(form, theta[active] - step, y)
        trial_value = _objective(form, trial, x, y[active])
        gain = value[active] - trial_value
        better = gain > 0
        theta[active[better]], value[active[better]] = trial[better], trial_value[better]
        damping[active] = np.clip(damping[active] * np.where(better, 0.2, 4.0), 1e-12, 1e12)
        done = np.where(better, gain < TOLERANCE * value[active], np.abs(step).max(axis=1) < SMALLEST_STEP)
        active = active[~done]
        if not active.size:
            break
    return theta


def _step(form: LawForm, theta: Array, x: Array, y: Array, damping: Array) -> Array:
    log_losses, jacobian = _losses_and_jacobian(form, theta, x)
    residuals = log_losses - y
    weights = HUBER_DELTA / np.maximum(np.abs(residuals), HUBER_DELTA)
    weighted = jacobian * weights[..., None]
    normal = np.swapaxes(weighted, 1, 2) @ jacobian
    gradient = np.einsum("bnp,bn->bp", weighted, residuals)
    diagonal = np.einsum("bpp->bp", normal)
    diagonal += damping[:, None] * (diagonal + 1e-9 * diagonal.max(axis=1, keepdims=True)) + 1e-30
    step: Array = np.linalg.solve(normal, gradient[..., None])[..., 0]
    return step


def _losses_and_jacobian(form: LawForm, theta: Array, x: Array) -> tuple[Array, Array]:
    """Log losses B × n, and their derivatives B × n × p."""
    terms = _terms(form, theta, x)
    log_losses = _lse(terms)
    shares = np.exp(terms - log_losses[..., None])
    powers = shares[..., form.floor :]
    return log_losses, np.concatenate([shares, -powers * x[:, form.floor :]], axis=-1)


def _terms(form: LawForm, theta: Array, x: Array) -> Array:
    """The logarithm of each term: ... × n × K."""
    count = x.shape[1]
    terms = np.repeat(theta[..., None, :count], len(x), axis=-2)
    terms[..., form.floor :] -= theta[..., None, count:] * x[:, form.floor :]
    return terms


def _lse(terms: Array) -> Array:
    largest = terms.max(axis=-1)
    total: Array = largest + np.log(np.exp(terms - largest[..., None]).sum(axis=-1))
    return total


def _log_losses(form: LawForm, theta: Array, x: Array) -> Array:
    return _lse(_terms(form, theta, x))


def _objective(form: LawForm, theta: Array, x: Array, y: Array) -> Array:
    """Huber's loss of the log residuals, summed over the cells: one for each member."""
    size = np.abs(_log_losses(form, theta, x) - y)
    small = np.minimum(size, HUBER_DELTA)
    total: Array = (small * (size - small / 2)).sum(axis=-1)
    return total


def _variables(form: LawForm, centred: Array) -> Array:
    """n × K: the variable of each term; 0 for E."""
    columns = [np.zeros(len(centred))] * form.floor + [centred[:, variable] for variable in form.variables]
    return np.stack(columns, axis=1)


def _clip_to_bounds(form: LawForm, theta: Array, y: Array) -> Array:
    """Keep exponents within their bounds, and E above what counts as zero: below, nothing would change any more."""
    terms = form.floor + len(form.variables)
    theta[..., terms:] = np.clip(theta[..., terms:], -MAX_EXPONENT, MAX_EXPONENT)
    if form.floor:
        theta[..., 0] = np.maximum(theta[..., 0], y.min() + np.log(SMALLEST_FLOOR))
    return theta


def _starts(form: LawForm, losses: Array) -> Array:
    """Every combination of exponents and of E; the coefficients follow, since variables are centred."""
    floors = START_FLOORS if form.floor else (0.0,)
    exponents = np.stack(np.meshgrid(*[START_EXPONENTS] * len(form.variables)), axis=-1).reshape(
        -1, len(form.variables)
    )
    starts = []
    for fraction in floors:
        floor = fraction * losses.min()
        share = (losses.mean() - floor) / len(form.variables)
        logs = [*([np.log(floor)] if form.floor else []), *[np.log(share)] * len(form.variables)]
        starts.append(np.concatenate([np.tile(logs, (len(exponents), 1)), exponents], axis=1))
    return np.concatenate(starts)


def _polish(form: LawForm, theta: Array, x: Array, y: Array) -> Array:
    """The same minimum by L-BFGS, as Hoffmann et al. find it, where that is lower still."""
    from scipy.optimize import minimize  # 0.2 s of import that only a fit needs

    def value_and_gradient(at: Array) -> tuple[float, Array]:
        log_losses, jacobian = _losses_and_jacobian(form, at[None], x)
        residuals = log_losses[0] - y
        gradient = jacobian[0].T @ np.clip(residuals, -HUBER_DELTA, HUBER_DELTA)
        return float(_objective(form, at, x, y)), gradient

    found = minimize(value_and_gradient, theta, jac=True, method="L-BFGS-B", options={"ftol": 1e-15, "gtol": 1e-12})
    better = np.isfinite(found.fun) and found.fun < _objective(form, theta, x, y)
    return _clip_to_bounds(form, np.asarray(found.x), y) if better else theta
