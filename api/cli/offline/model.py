"""What `plan` and `memory` share: their arguments, and how what cannot be understood ends them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from api.cli.console import complain
from api.cli.service import BAD_INPUT
from optim.catalog import Scalar
from optim.errors import OptimError
from worker.catalog import presets

if TYPE_CHECKING:
    from optim.plan.rules import Rule

Model = Annotated[str, typer.Argument(help="A model by name; `adapm-bench models` lists them.", metavar="MODEL")]
RankRatio = Annotated[
    float | None, typer.Option("--rank-ratio", help="Rank of low-rank momentum over min(m, n).", metavar="R")
]
StateDtype = Annotated[
    str | None, typer.Option("--state-dtype", help="Type of optimizer state: fp32, bf16.", metavar="TYPE")
]

Rules = Annotated[
    list[str] | None,
    typer.Option(
        "--rule",
        help="PATTERN=WHAT for blocks that fit: full, low-rank, none, rank:N, per:element|row|neuron|head; "
        "several with commas between. Repeatable, later ones win.",
        metavar="PATTERN=WHAT",
    ),
]

_DTYPES = {"fp32": "float32", "bf16": "bfloat16"}


def state_options(rank_ratio: float | None, state_dtype: str | None) -> dict[str, Scalar]:
    """The catalog's options for what was given."""
    given: dict[str, Scalar] = {} if rank_ratio is None else {"rank_ratio": rank_ratio}
    return given if state_dtype is None else {**given, "state_dtype": _DTYPES.get(state_dtype, state_dtype)}


def block_rules(texts: list[str] | None) -> "list[Rule]":
    """The rules for what was given, `*.mlp.*.weight=rank:8,per:neuron`; raises RuleError for any other form."""
    from optim.plan.rules import rule_of

    return [rule_of(text) for text in texts or ()]


@contextmanager
def check_model_name(model: str) -> Iterator[None]:
    """Check the model's name; what the optimizers refuse ends the command with a sentence and exit code 2."""
    try:
        presets.preset(model)
        yield
    except KeyError as error:
        complain(str(error.args[0]))
        raise typer.Exit(BAD_INPUT) from None
    except OptimError as error:
        complain(str(error))
        raise typer.Exit(BAD_INPUT) from None
