"""The catalog: every optimizer that the bench can build, as a table of frozen entries.

It imports no torch, so that specs can be validated and served by a small, fast process. `optim/build.py` turns an
entry into a `torch.optim.Optimizer`. AdaPM's entries stand here, the others in `baseline_entries.py`; those that
installed packages add come from `own.py`.
"""

from optim.baseline_entries import ADAMW, BASELINES
from optim.entries import OptimizerEntry as OptimizerEntry
from optim.entries import Option as Option
from optim.entries import Scalar as Scalar
from optim.errors import UnknownOptimizerError
from optim.nearest import unknown
from optim.own import own_entries
from optim.shared_options import BETA1, BETA2, EPS, WEIGHT_DECAY

_ADAPM_OPTIONS = (
    BETA1,
    BETA2,
    EPS,
    WEIGHT_DECAY,
    Option(
        name="rank_ratio",
        kind="float",
        default=0.05,  # paper, section 5.1: r = 5 %
        meaning="rank of low-rank momentum over min(m, n)",
        minimum=0.0,
        maximum=1.0,
        exclusive_minimum=True,
    ),
    Option(
        name="solver",
        kind="choice",
        default="subspace",
        meaning="how the factors of the momentum are found; svd is exact and slow, gd the paper's own, made to work",
        choices=("subspace", "scaled_gd", "gd", "svd"),
    ),
    Option(
        name="inner_iterations",
        kind="int",
        default=None,
        meaning="the solver's iterations a step; null for its own: 1 for subspace, 5 for the gradient solvers",
        minimum=1,
        maximum=100,
        nullable=True,
    ),
    Option(
        name="refresh_interval",
        kind="int",
        default=100,  # paper, section 5.1: T = 100
        meaning="steps between fresh starts of the factors; 0 for never",
        minimum=0,
        maximum=10**9,
    ),
    Option(
        name="clip",
        kind="float",
        default=1.0,  # paper, algorithm 1, line 9
        meaning="bound on each element of the update of low-rank and momentum-free blocks; null for none",
        minimum=0.0,
        exclusive_minimum=True,
        nullable=True,
    ),
    Option(
        name="bias_correction",
        kind="bool",
        default=True,
        meaning="make up for what the low rank drops (paper, algorithm 1, line 8)",
    ),
    Option(
        name="debias_moments",
        kind="bool",
        default=False,
        meaning="divide the moments by 1 - b^t, as Adam does and algorithm 1 does not",
    ),
    Option(
        name="momentum_free_lr_scale",
        kind="float",
        default=0.75,  # paper, section 5.1
        meaning="learning-rate factor of blocks without momentum",
        minimum=0.0,
        maximum=10.0,
        exclusive_minimum=True,
    ),
    Option(
        name="state_dtype",
        kind="choice",
        default=None,
        meaning="type of all state; null for the parameter's own, at least float32",
        choices=("float32", "bfloat16"),
        nullable=True,
    ),
    Option(
        name="unknown",
        kind="choice",
        default="error",
        meaning="weights that the block plan cannot place: refuse them, or keep full Adam moments",
        choices=("error", "full"),
    ),
    Option(
        name="seed",
        kind="int",
        default=0,
        meaning="seed of the factors' fresh starts",
        minimum=0,
        maximum=2**63 - 1,
    ),
)

_ADAPM_PAPER = "Zhang, Liu, Fang: AdaPM, a Partial Momentum Algorithm for LLM Training, arXiv 2510.09103"

# Grid centres are the field's value for GPT-2 124M: 6e-4 (GPT-3 paper, table 2.1; nanoGPT's default). The paper gives
# AdaPM AdamW's own rate. Small models want more: a comparison states its own rates.
CATALOG: tuple[OptimizerEntry, ...] = (
    ADAMW,
    OptimizerEntry(
        name="adapm",
        title="AdaPM",
        factory="optim.factories:adapm",
        learning_rate=6e-4,
        options=_ADAPM_OPTIONS,
        summary="Adam with no, low-rank or full momentum, block by block; about half of AdamW's state.",
        paper=_ADAPM_PAPER,
        licence="Apache-2.0",
    ),
    OptimizerEntry(
        name="adapm-mini",
        title="AdaPM-mini",
        factory="optim.factories:adapm_mini",
        learning_rate=6e-4,
        options=_ADAPM_OPTIONS,
        summary="AdaPM with Adam-mini's second moment; about a twentieth of AdamW's state.",
        paper=_ADAPM_PAPER,
        licence="Apache-2.0",
    ),
    *BASELINES,
)
"""What this project ships."""


def entries() -> tuple[OptimizerEntry, ...]:
    """All optimizers: ours, then those of installed packages that the operator allows."""
    return CATALOG + own_entries(CATALOG)


def names() -> tuple[str, ...]:
    """The names of all optimizers, in catalog order."""
    return tuple(entry.name for entry in entries())


def knows(name: str) -> bool:
    """Whether an entry has that name; packages are loaded for names only that we do not ship."""
    return _found(CATALOG, name) is not None or _found(entries(), name) is not None


def entry(name: str) -> OptimizerEntry:
    """The entry of that name; raises `UnknownOptimizerError`."""
    if (found := _found(CATALOG, name) or _found(entries(), name)) is not None:
        return found
    raise UnknownOptimizerError(unknown("optimizer", name, names()))


def _found(among: tuple[OptimizerEntry, ...], name: str) -> OptimizerEntry | None:
    return next((candidate for candidate in among if candidate.name == name), None)
