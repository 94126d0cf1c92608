"""The catalog: every optimizer that the bench can build, as a table of frozen entries.

It imports no torch, so that specs can be validated and served by a small, fast process. `optim/build.py` turns an
entry into a `torch.optim.Optimizer`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from optim.errors import UnknownOptimizerError

Scalar = bool | int | float | str | None
OptionKind = Literal["float", "int", "bool", "choice"]


@dataclass(frozen=True, kw_only=True)
class Option:
    """One typed option of an optimizer, with its bounds and default."""

    name: str
    kind: OptionKind
    default: Scalar
    meaning: str
    minimum: float | None = None
    maximum: float | None = None
    exclusive_minimum: bool = False
    exclusive_maximum: bool = False
    choices: tuple[str, ...] = ()
    nullable: bool = False

    def fault(self, value: object) -> str | None:
        """Say what is allowed where `value` is not; None where it is fine."""
        if value is None:
            return None if self.nullable else f"must be {self.allowed()}"
        return None if self._admits(value) else f"must be {self.allowed()}"

    def allowed(self) -> str:
        """The allowed values in words: `a number in [0, 1)`, `one of subspace, svd`."""
        null = " or null" if self.nullable else ""
        if self.kind == "bool":
            return "true or false" + null
        if self.kind == "choice":
            return "one of " + ", ".join(self.choices) + null
        noun = "a whole number" if self.kind == "int" else "a number"
        return noun + self._interval() + null

    def _admits(self, value: object) -> bool:
        if self.kind == "bool":
            return isinstance(value, bool)
        if self.kind == "choice":
            return isinstance(value, str) and value in self.choices
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        if self.kind == "int" and not isinstance(value, int):
            return False
        return self._above_minimum(value) and self._below_maximum(value)

    def _above_minimum(self, value: float) -> bool:
        if self.minimum is None:
            return value == value and value != float("-inf")
        return value > self.minimum if self.exclusive_minimum else value >= self.minimum

    def _below_maximum(self, value: float) -> bool:
        if self.maximum is None:
            return value == value and value != float("inf")
        return value < self.maximum if self.exclusive_maximum else value <= self.maximum

    def _interval(self) -> str:
        if self.minimum is None and self.maximum is None:
            return ""
        low = "(-inf" if self.minimum is None else f"{'(' if self.exclusive_minimum else '['}{self.minimum:g}"
        high = "inf)" if self.maximum is None else f"{self.maximum:g}{')' if self.exclusive_maximum else ']'}"
        return f" in {low}, {high}"


@dataclass(frozen=True, kw_only=True)
class OptimizerEntry:
    """One optimizer of the catalog."""

    name: str
    """The name in specs: lower case, hyphens."""
    title: str
    """The name in tables and figures."""
    factory: str
    """Import string `module:callable`; the callable takes `(model, lr=…, **options)`."""
    learning_rate: float
    """Centre of the learning-rate grid."""
    options: tuple[Option, ...]
    summary: str
    paper: str
    licence: str

    def option(self, name: str) -> Option | None:
        """The option of that name, or None."""
        return next((option for option in self.options if option.name == name), None)

    def faults(self, options: Mapping[str, object]) -> Iterator[tuple[str, str]]:
        """Yield (option name, what is allowed) for every option that this optimizer would refuse."""
        for name, value in options.items():
            known = self.option(name)
            if known is None:
                yield name, f"unknown option of {self.name}; known: {', '.join(o.name for o in self.options)}"
            elif (fault := known.fault(value)) is not None:
                yield name, fault

    def defaults(self) -> dict[str, Scalar]:
        """Every option at its default."""
        return {option.name: option.default for option in self.options}


_BETA1 = Option(
    name="beta1",
    kind="float",
    default=0.9,  # paper, section 5.1
    meaning="decay rate of the momentum",
    minimum=0.0,
    maximum=1.0,
    exclusive_maximum=True,
)
_BETA2 = Option(
    name="beta2",
    kind="float",
    default=0.95,  # paper, section 5.1
    meaning="decay rate of the second moment",
    minimum=0.0,
    maximum=1.0,
    exclusive_maximum=True,
)
_EPS = Option(
    name="eps",
    kind="float",
    default=1e-8,  # paper, section 5.1
    meaning="added to the root of the second moment",
    minimum=0.0,
)
_WEIGHT_DECAY = Option(
    name="weight_decay",
    kind="float",
    default=0.1,  # paper, section 5.1
    meaning="decoupled decay of matrices; vectors never decay",
    minimum=0.0,
)

_ADAPM_OPTIONS = (
    _BETA1,
    _BETA2,
    _EPS,
    _WEIGHT_DECAY,
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
    OptimizerEntry(
        name="adamw",
        title="AdamW",
        factory="optim.factories:adamw",
        learning_rate=6e-4,
        options=(_BETA1, _BETA2, _EPS, _WEIGHT_DECAY),
        summary="Adam with decoupled weight decay; torch's own, fused. The baseline.",
        paper="Loshchilov, Hutter: Decoupled Weight Decay Regularization, arXiv 1711.05101",
        licence="BSD-3-Clause (PyTorch)",
    ),
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
)


def names() -> tuple[str, ...]:
    """The names of all optimizers, in catalog order."""
    return tuple(entry.name for entry in CATALOG)


def entry(name: str) -> OptimizerEntry:
    """The entry of that name; raises `UnknownOptimizerError`."""
    for candidate in CATALOG:
        if candidate.name == name:
            return candidate
    raise UnknownOptimizerError(f"unknown optimizer {name!r}; known: {', '.join(names())}")
