"""What `plan` and `memory` share: their arguments, and how what cannot be understood ends them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from api.cli.console import complain
from api.cli.service import BAD_INPUT
from optim.catalog import Scalar
from optim.errors import OptimError
from worker import presets

if TYPE_CHECKING:
    from optim.rules import Rule

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
    return [_rule(text) for text in texts or ()]


def _rule(text: str) -> "Rule":
    from optim.blocks import FirstMoment, SecondMoment
    from optim.errors import RuleError
    from optim.rules import Rule

    pattern, _, wishes = text.rpartition("=")
    first: FirstMoment | None = None
    second: SecondMoment | None = None
    rank: int | None = None
    for wish in wishes.split(","):
        key, _, value = wish.strip().partition(":")
        if not value and key.replace("-", " ") in list(FirstMoment):
            first = FirstMoment(key.replace("-", " "))
        elif key == "per" and value in list(SecondMoment):
            second = SecondMoment(value)
        elif key == "rank" and value.isdecimal():
            rank = int(value)
        else:
            raise RuleError(
                f"the rule {text!r} cannot be understood at {wish!r}; write PATTERN=WHAT, WHAT being full, low-rank, "
                f"none, rank:N or per:element, per:row, per:neuron, per:head, or several with commas between"
            )
    return Rule(pattern, first_moment=first, second_moment=second, rank=rank)


@contextmanager
def understood(model: str) -> Iterator[None]:
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
