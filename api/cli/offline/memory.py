"""`adapm-bench memory MODEL`: what training a model keeps under each optimizer, known before it is trained;
`plan MODEL`: what AdaPM keeps for every block, layers of one shape folded into one line.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import product
from math import prod
from pathlib import Path
from re import compile as pattern
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer
from pydantic import ValidationError
from rich.table import Table
from rich.text import Text

from api.cli.console import Json, console, plain_table, print_json, refuse
from dashboards.text import formats
from optim import catalog
from optim.catalog import Scalar
from optim.errors import OptimError
from orchestrator.specs.footprints import answer_path
from worker.catalog import presets
from worker.files import write_atomically
from worker.records.footprint import BASELINE, Footprint

if TYPE_CHECKING:
    from optim.plan.blocks import Block, BlockPlan
    from optim.plan.rules import Rule

Model = Annotated[str, typer.Argument(help="A model by name; `adapm-bench models` lists them.", metavar="MODEL")]
RankRatio = Annotated[
    float | None, typer.Option("--rank-ratio", help="Rank of low-rank momentum over min(m, n).", metavar="R")
]
StateDtype = Annotated[
    str | None, typer.Option("--state-dtype", help="Type of optimizer state: fp32, bf16, int8.", metavar="TYPE")
]

RulesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--rule",
        help="What to keep for blocks that match: full, low-rank, none, rank:N, per:element|row|neuron|head; "
        "several separated by commas. Repeatable; later rules win.",
        metavar="PATTERN=WHAT",
    ),
]
Optimizers = Annotated[
    list[str] | None,
    typer.Option("--optimizers", help="Only these, separated by commas; repeatable; default: all.", metavar="A,B"),
]
Ranks = Annotated[
    int,
    typer.Option(
        "--ranks",
        min=1,
        max=65_536,
        help="Processes that share the model (execution.parallel: fsdp); the bytes are those of the one with the most.",
        metavar="N",
    ),
]
Optimizer = Annotated[str, typer.Option("--optimizer", help="An optimizer with a block plan.", metavar="NAME")]

DTYPES = {"fp32": "float32", "bf16": "bfloat16"}
MOST_COUNTS = 200
"""Are kept, the newest ones."""
NUMBER = pattern(r"(?<=[.:])\d+(?=\.|$)")
"""A number within the name of a block."""


def memory(
    model: Model,
    optimizers: Optimizers = None,
    rank_ratio: RankRatio = None,
    state_dtype: StateDtype = None,
    rule: RulesOption = None,
    ranks: Ranks = 1,
    json: Json = False,
) -> None:
    """Count parameters, gradients and optimizer state before training. It needs no service, nor that memory."""
    given = [name.strip() for text in optimizers or () for name in text.split(",")]
    names = list(dict.fromkeys(given)) if given else None
    with check_model_name(model):
        found = _count_once(model, names, state_options(rank_ratio, state_dtype), rule or [], ranks)
    print_json(found) if json else _print_footprint(found)


def _count_once(
    model: str, names: list[str] | None, options: dict[str, Scalar], rule: list[str], ranks: int
) -> Footprint:
    """The count, which the same code and libraries make once: seconds, and 30 ms from then on."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "adapm-bench" / "footprints"
    path = answer_path(cache, model, options, names, rule, ranks)
    with suppress(OSError, ValidationError):
        return Footprint.model_validate_json(path.read_bytes())
    from worker.footprint.count import footprint  # loads torch

    found = footprint(model, names, options, block_rules(rule), ranks)
    with suppress(OSError):  # whose home cannot be written counts again
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, found.model_dump_json())
        for old in sorted(path.parent.glob("*.json"), key=lambda each: each.stat().st_mtime)[:-MOST_COUNTS]:
            old.unlink(missing_ok=True)
    return found


def _print_footprint(found: Footprint) -> None:
    out = console()
    each = f" each of {found.ranks} ranks (FSDP2)" if found.ranks > 1 else ""
    out.print(
        f"{found.model}: {formats.count(found.parameters)} parameters, {formats.size(found.parameter_bytes)}{each}; "
        f"gradients {formats.size(found.gradient_bytes)}. Activations come on top.\n"
    )
    out.print(_total_table(found))
    out.print("\nState by kind of block:\n")
    out.print(_block_table(found))
    if any("several" in one.state_by_block for one in found.optimizers):
        out.print("\nseveral: of fused parameters, for query, key and value (or gate and up projection) together.")
    whole = (
        [one.optimizer for one in found.optimizers if catalog.entry(one.optimizer).sharding_fault(one.options)]
        if found.ranks > 1
        else []
    )
    if whole:
        out.print(f"\nNot with execution.parallel = fsdp, since they need whole parameters: {', '.join(whole)}.")
    for one in found.optimizers:
        if one.unknown_because is not None and one.optimizer not in whole:
            out.print(f"\n{one.optimizer} cannot be counted without a run ({one.unknown_because}).")
    if found.notes:
        out.print("\nPaper: arXiv 2510.09103, table 2.", *found.notes, sep="\n")


def _total_table(found: Footprint) -> Table:
    published = any(one.published_bytes is not None for one in found.optimizers)
    columns = (
        "state",
        "saved against adamw",
        "parameters + gradients + state",
        *(["paper's state"] if published else []),
    )
    table = plain_table("optimizer", *columns, "options")
    kept = found.parameter_bytes + found.gradient_bytes
    for one in found.optimizers:
        total, saved = None if one.state_bytes is None else kept + one.state_bytes, formats.UNKNOWN
        if one.optimizer != BASELINE and one.state_bytes is not None and found.baseline_bytes:
            share = 1 - one.state_bytes / found.baseline_bytes
            saved = formats.percent(share) if share >= 0 else f"{formats.percent(-share)} more"
        cells = [one.optimizer, formats.size(one.state_bytes), saved, formats.size(total)]
        if published:
            cells.append(formats.size(one.published_bytes))
        options = ", ".join(f"{name} {value}" for name, value in one.options.items())
        table.add_row(*(Text(cell) for cell in (*cells, options)))
    return table


def _block_table(found: Footprint) -> Table:
    """A line an optimizer, a column a kind of block; the largest kinds first, counters last."""
    sizes: dict[str, int] = {}
    for one in found.optimizers:
        for kind, size in one.state_by_block.items():
            sizes[kind] = max(size, sizes.get(kind, 0))
    kinds = sorted(sizes, key=lambda kind: -sizes[kind])
    table = plain_table("optimizer", *(kind.replace("_", "\n") for kind in kinds), "step\ncounters")
    for one in found.optimizers:
        if one.state_bytes is not None:
            sizes_kept = [one.state_by_block.get(kind, 0) for kind in kinds]
            cells = (one.optimizer, *(formats.size(size) if size else "" for size in (*sizes_kept, one.counter_bytes)))
            table.add_row(*(Text(cell) for cell in cells))
    return table


class Fold(NamedTuple):
    """Blocks that differ in the numbers of their names only."""

    name: str
    """Their names in one: `h.0–11.mlp.c_fc.weight`."""
    blocks: "tuple[Block, ...]"


def plan(
    model: Model,
    optimizer: Optimizer = "adapm",
    rank_ratio: RankRatio = None,
    state_dtype: StateDtype = None,
    rule: RulesOption = None,
    json: Json = False,
) -> None:
    """Show what AdaPM keeps for every block of a model. It needs no service."""
    with check_model_name(model):
        from worker.footprint.count import block_plan  # loads torch

        found = block_plan(model, optimizer, state_options(rank_ratio, state_dtype), block_rules(rule))
    if found is None:
        planned = ", ".join(entry.name for entry in catalog.entries() if entry.has_plan)
        refuse(f"{optimizer} has no block plan; those that have one: {planned}")
    if not json:
        console().print(_plan_table(found))
        parameters = sum(prod(block.shape) for block in found)
        share = formats.percent(found.state_bytes / (8 * parameters))
        print(
            f"\n{model}: {formats.count(parameters)} parameters in {len(found)} blocks; {optimizer} keeps "
            f"{formats.size(found.state_bytes)}, {share} of AdamW's two float32 values a parameter."
        )
        return
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
    print_json({"model": model, "optimizer": optimizer, "state_bytes": found.state_bytes, "blocks": blocks})


def fold_blocks(blocks: "Iterable[Block]") -> Iterator[Fold]:
    """Fold blocks that are alike but for the numbers in their names, where these make up whole ranges."""
    alike: dict[tuple[object, ...], list[Block]] = {}
    for block in blocks:
        likeness = (NUMBER.sub("#", block.name), block.shape, block.part, _moments(block), block.state_bytes)
        alike.setdefault(likeness, []).append(block)
    for (template, *_), members in alike.items():
        yield from _folds(str(template), tuple(members))


def _folds(template: str, members: "tuple[Block, ...]") -> Iterator[Fold]:
    numbers = [tuple(int(number) for number in NUMBER.findall(block.name)) for block in members]
    columns = [sorted(set(column)) for column in zip(*numbers, strict=True)]
    if sorted(numbers) != sorted(product(*columns)):
        yield from (Fold(block.name, (block,)) for block in members)
        return
    ranges = iter([_range(column) for column in columns])
    # Only our own marks are filled in: a name cannot hold another `#`, which is no identifier.
    yield Fold("".join(next(ranges) if letter == "#" else letter for letter in template), members)


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


def _plan_table(found: "BlockPlan") -> Table:
    table = plain_table("block", "")
    for column in ("shape", "kind", "first moment", "second"):
        table.add_column(column, no_wrap=True)
    table.add_column("state", justify="right", no_wrap=True)
    for fold in fold_blocks(found):
        first, count = fold.blocks[0], len(fold.blocks)
        shape = "×".join(map(str, first.shape)) or "scalar"
        state = formats.size(sum(block.state_bytes for block in fold.blocks))
        kind = str(first.kind).replace("_", " ")
        title = fold.name.replace(".weight", "")  # which says nothing
        title += "" if first.part is None else f" {first.part}"  # the slice of a fused parameter
        cells = (title, f"×{count}" if count > 1 else "", shape, kind, *_moments(first), state)
        table.add_row(*(Text(cell) for cell in cells))
    return table


def state_options(rank_ratio: float | None, state_dtype: str | None) -> dict[str, Scalar]:
    """The catalog's options for what was given."""
    given: dict[str, Scalar] = {} if rank_ratio is None else {"rank_ratio": rank_ratio}
    return given if state_dtype is None else {**given, "state_dtype": DTYPES.get(state_dtype, state_dtype)}


def block_rules(texts: list[str] | None) -> "list[Rule]":
    """The rules for what was given, `*.mlp.*.weight=rank:8,per:neuron`; raises RuleError for any other form."""
    from optim.plan.rules import rule_of  # loads torch

    return [rule_of(text) for text in texts or ()]


@contextmanager
def check_model_name(model: str) -> Iterator[None]:
    """Check the model's name; what the optimizers refuse ends the command with a sentence and exit code 2."""
    try:
        presets.preset(model)
        yield
    except KeyError as error:
        refuse(str(error.args[0]))
    except OptimError as error:
        refuse(str(error))
