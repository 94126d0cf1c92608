"""`debias-theorem`: theorem 2 as a numerical experiment, the bias of the corrected momentum over t against its bound.

Many replicas of algorithm 1's lines 4 to 8 on one matrix, with gradients G_t = S + noise: S fixed, of falling spectrum,
so that what a low rank drops has a mean that correction must bring back.
"""

from typing import TYPE_CHECKING

from orchestrator.studies.evidence import Evidence, StudyScale
from orchestrator.studies.findings import ClaimVerdict, Judgement, Measure, missing
from orchestrator.studies.study import Numbers, Plan, Study

if TYPE_CHECKING:
    from torch import Generator, Tensor

ROWS, COLUMNS, RANK = 24, 16, 2
BETA1 = 0.9
"""The paper's."""
NOISE = 0.002
"""Of each element of a gradient; S has singular values 1, 1/2, 1/3, …"""
REPLICAS = 64
STEPS = (1, 2, 3, 5, 10, 20, 40)
SEED = 20_251_009
Z = 3.0
"""Standard errors of the mean over replicas that a measured bias must exceed to count."""


def compute() -> Numbers:
    """`bias`, `plain` (without correction), `error` (one standard error) and `mean_residual` at some t, and the exact
    solver's largest mean residual C."""
    import torch

    generator = torch.Generator().manual_seed(SEED)
    left, right = (_orthonormal(torch.randn(size, COLUMNS, generator=generator)) for size in (ROWS, COLUMNS))
    mean = left @ torch.diag(1.0 / torch.arange(1, COLUMNS + 1)) @ right.T
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # thousands of tiny decompositions: threads would only wait for each other
    try:
        return _follow_momentum(mean, generator)
    finally:
        torch.set_num_threads(threads)


def _follow_momentum(mean: "Tensor", generator: "Generator") -> Numbers:
    import torch

    from optim.adapm.low_rank import Factors, Momentum
    from optim.adapm.solvers import svd

    factors = Factors(torch.zeros(REPLICAS, ROWS, RANK), torch.zeros(REPLICAS, RANK, COLUMNS))
    full, found, largest = torch.zeros(REPLICAS, ROWS, COLUMNS), {}, 0.0
    for t in range(1, max(STEPS) + 1):
        noise = torch.randn(full.shape, generator=generator)
        momentum = Momentum(gradient=mean + NOISE * noise, carried=factors, beta1=BETA1)
        dense = momentum.dense()
        full = BETA1 * full + (1.0 - BETA1) * momentum.gradient
        factors = svd(momentum, iterations=1, fresh=False, sketch=lambda: torch.empty(0))
        residual = factors.left @ factors.right - dense
        corrected = dense - BETA1 / (1.0 - BETA1) * residual
        largest = max(largest, _mean_norm(residual)[0])
        if t in STEPS:
            found[f"bias/{t}"], found[f"error/{t}"] = _mean_norm(corrected - full)
            found[f"plain/{t}"] = _mean_norm(dense - full)[0]
            found[f"mean_residual/{t}"] = _mean_norm(residual)[0]
    return found | {"C": largest}


def _mean_norm(samples: "Tensor") -> tuple[float, float]:
    """(norm of the mean over replicas, without what their noise adds to it; its standard error). Samples: B × m × n."""
    average = samples.mean(dim=0)
    error = float((samples.var(dim=0).sum() / samples.shape[0]).sqrt())
    squared = float(average.square().sum()) - error**2
    return max(squared, 0.0) ** 0.5, error


def _orthonormal(matrix: "Tensor") -> "Tensor":
    import torch

    columns: Tensor = torch.linalg.qr(matrix).Q
    return columns


def theorem_bound(largest_mean: float, t: int) -> float:
    """The theorem's, C b1^(t+1) / (1 − b1)."""
    return largest_mean * BETA1 ** (t + 1) / (1.0 - BETA1)


def judge(evidence: Evidence) -> Judgement:
    """At every t: is the bias below the bound, and what would it be without correction?"""
    values = evidence.computed
    if not values:
        return missing("nothing has been computed")
    if any(f"{name}/{t}" not in values for name in ("bias", "error", "plain") for t in STEPS) or "C" not in values:
        return missing("some steps have not been computed")
    measures, above, one_later = [], [], []
    for t in STEPS:
        bias, error, limit = values[f"bias/{t}"], values[f"error/{t}"], theorem_bound(values["C"], t)
        measures.append(
            Measure(
                name=f"t = {t}",
                value=bias,
                low=max(bias - Z * error, 0.0),
                high=bias + Z * error,
                n=REPLICAS,
                claimed=limit,
                note=f"{values[f'plain/{t}']:.3g} without correction",
            )
        )
        if bias - Z * error > limit:
            above.append(t)
        if bias - Z * error > limit / BETA1:
            one_later.append(t)
    last = STEPS[-1]
    ratio = values[f"plain/{last}"] / (values[f"bias/{last}"] + Z * values[f"error/{last}"])
    removed = f"after {last} steps correction leaves at most 1 / {ratio:.0f} of the bias"
    open_at = [t for t in STEPS if values[f"bias/{t}"] + Z * values[f"error/{t}"] > theorem_bound(values["C"], t)]
    if not above and open_at:
        times = ", ".join(map(str, open_at))
        sentence = f"Not told apart from the bound at t = {times}, by {Z:g} standard errors; {removed}."
        return Judgement(measured=ClaimVerdict.UNDECIDED, sentence=sentence, measures=tuple(measures))
    if not above:
        return Judgement(
            measured=ClaimVerdict.HOLDS, sentence=f"Below the bound at every t; {removed}.", measures=tuple(measures)
        )
    times = ", ".join(map(str, above))
    sentence = f"Above the printed bound at t = {times}; {removed}."
    notes = [
        f"The intervals are {Z:g} standard errors of the mean over {REPLICAS} replicas to each side.",
        "The proof counts the residual r_0 = 0 as if it were distributed like the others; without it the same proof "
        "gives C b1^t / (1 − b1), larger by 1 / b1.",
        "The larger bound is exceeded nowhere."
        if not one_later
        else f"The larger bound is exceeded at t = {', '.join(map(str, one_later))}: "
        "there the residuals are not stationary, which the theorem assumes.",
    ]
    answer = ClaimVerdict.IN_PART if ratio > 2 else ClaimVerdict.FAILS
    return Judgement(measured=answer, sentence=sentence, measures=tuple(measures), notes=tuple(notes))


_PLAN = Plan(compute=compute, version="1")

STUDY = Study(
    name="debias-theorem",
    title="Bias of the corrected momentum: theorem 2",
    question="Does the correction remove the bias of the low-rank momentum at the rate that theorem 2 says?",
    claim="If the residuals are stationary with a mean of norm at most C, the norm of E[m^c − m^f] is at most "
    "C b1^(t+1) / (1 − b1), so the bias vanishes.",
    source="theorem 2, section 4.2",
    plans={StudyScale.TINY: _PLAN, StudyScale.PAPER: _PLAN},
    judge=judge,
    about_large_models=False,
    caveats=("Gradients with a fixed mean and independent noise, the exact solver: algorithm 1 as it is analysed.",),
    axis="norm of the mean difference to the full momentum",
    order=30,
)
