"""`adapm-bench plan MODEL`: what AdaPM keeps for every block of a model, layers of one shape folded into one line."""

from collections.abc import Iterable, Iterator
from itertools import product
from math import prod
from re import compile as pattern
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from api.cli.console import complain, console, print_json
from api.cli.offline.model import Model, RankRatio, Rules, StateDtype, block_rules, check_model_name, state_options
from api.cli.service import BAD_INPUT, Json

if TYPE_CHECKING:
    from rich.table import Table

    from optim.plan.blocks import Block, BlockPlan

Optimizer = Annotated[str, typer.Option("--optimizer", help="An optimizer with a block plan.", metavar="NAME")]

_NUMBER = pattern(r"(?<=[.:])\d+(?=\.|$)")


class Fold(NamedTuple):
    """Blocks that differ in the numbers of their names only."""

    name: str
    """Their names in one: `h.0–11.mlp.c_fc.weight`."""
    blocks: "tuple[Block, ...]"


def register(app: typer.Typer) -> None:
    """Add the verb of this file."""
    app.command()(plan)


def plan(
    model: Model,
    optimizer: Optimizer = "adapm",
    rank_ratio: RankRatio = None,
    state_dtype: StateDtype = None,
    rule: Rules = None,
    json: Json = False,
) -> None:
    """Show what AdaPM keeps for every block of a model. It needs no service."""
    with check_model_name(model):
        from worker.footprint.count import block_plan

        found = block_plan(model, optimizer, state_options(rank_ratio, state_dtype), block_rules(rule))
    if found is None:
        _refuse(optimizer)
    elif json:
        print_json(_fields(model, optimizer, found))
    else:
        console().print(_table(found))
        print(f"\n{_summary(model, optimizer, found)}")


def fold_blocks(blocks: "Iterable[Block]") -> Iterator[Fold]:
    """Fold blocks that are alike but for the numbers in their names, where these make up whole ranges."""
    alike: dict[tuple[object, ...], list[Block]] = {}
    for block in blocks:
        likeness = (_NUMBER.sub("#", block.name), block.shape, block.part, _moments(block), block.state_bytes)
        alike.setdefault(likeness, []).append(block)
    for (template, *_), members in alike.items():
        yield from _folds(str(template), tuple(members))


def _folds(template: str, members: "tuple[Block, ...]") -> Iterator[Fold]:
    numbers = [tuple(int(number) for number in _NUMBER.findall(block.name)) for block in members]
    columns = [sorted(set(column)) for column in zip(*numbers, strict=True)]
    if sorted(numbers) != sorted(product(*columns)):
        yield from (Fold(block.name, (block,)) for block in members)
        return
    ranges = iter([_range(column) for column in columns])
    # Only our own marks are filled in: a name cannot hold another `#`, which is no identifier.
    yield Fold("".join(next(ranges) if part == "#" else part for part in _marked(template)), members)


def _marked(template: str) -> list[str]:
    return pattern(r"(#)").split(template)


def _range(numbers: list[int]) -> str:
    """`0–11`, or `0,2,4` where some are missing."""
    first, last = numbers[0], numbers[-1]
    if len(numbers) == 1:
        return str(first)
    return f"{first}–{last}" if last - first + 1 == len(numbers) else ",".join(map(str, numbers))


def _moments(block: "Block") -> tuple[str, str]:
    """(first moment with its rank, what shares a second moment)."""
    rank = f", r = {block.rank}" if block.rank else ""
    return f"{block.first_moment}{rank}", f"per {block.second_moment}"


def _table(found: "BlockPlan") -> "Table":
    from rich.text import Text

    from api.cli.tables.comparison import plain_table
    from dashboards.text import formats

    table = plain_table("block", "")
    for column in ("shape", "kind", "first moment", "second"):
        table.add_column(column, no_wrap=True)
    table.add_column("state", justify="right", no_wrap=True)
    for fold in fold_blocks(found):
        first, count = fold.blocks[0], len(fold.blocks)
        shape = "×".join(map(str, first.shape)) or "scalar"
        state = formats.size(sum(block.state_bytes for block in fold.blocks))
        kind = str(first.kind).replace("_", " ")
        cells = (_title(fold), f"×{count}" if count > 1 else "", shape, kind, *_moments(first), state)
        table.add_row(*(Text(cell) for cell in cells))
    return table


def _title(fold: Fold) -> str:
    """The name without `.weight`, which says nothing, and the slice of a fused parameter."""
    first = fold.blocks[0]
    name = fold.name.replace(".weight", "")
    return name if first.part is None else f"{name} {first.part}"


def _summary(model: str, optimizer: str, found: "BlockPlan") -> str:
    from dashboards.text import formats

    parameters = sum(prod(block.shape) for block in found)
    share = found.state_bytes / (8 * parameters)
    return (
        f"{model}: {formats.count(parameters)} parameters in {len(found)} blocks; {optimizer} keeps "
        f"{formats.size(found.state_bytes)}, {formats.percent(share)} of AdamW's two float32 values a parameter."
    )


def _fields(model: str, optimizer: str, found: "BlockPlan") -> dict[str, Any]:
    blocks = [
        {
            "block": block.name,
            "parameter": block.parameter,
            "index": block.index,
            "slice": block.part,
            "shape": block.shape,
            "kind": block.kind,
            "first_moment": block.first_moment,
            "second_moment": block.second_moment,
            "rank": block.rank,
            "state_dtype": str(block.state_dtype).removeprefix("torch."),
            "state_bytes": block.state_bytes,
        }
        for block in found
    ]
    return {"model": model, "optimizer": optimizer, "state_bytes": found.state_bytes, "blocks": blocks}


def _refuse(optimizer: str) -> None:
    from optim import catalog

    planned = [entry.name for entry in catalog.entries() if entry.planned]
    complain(f"{optimizer} keeps to no block plan; those that do: {', '.join(planned)}")
    raise typer.Exit(BAD_INPUT)
