"""`adapm-bench memory MODEL`: what training a model keeps under each optimizer, known before it is trained."""

from typing import TYPE_CHECKING, Annotated

import typer

from api.cli.console import console, print_json
from api.cli.offline.model import Model, RankRatio, Rules, StateDtype, block_rules, check_model_name, state_options
from api.cli.service import Json

if TYPE_CHECKING:
    from rich.table import Table

    from worker.footprint.count import Footprint, OptimizerFootprint

Optimizers = Annotated[
    list[str] | None,
    typer.Option("--optimizers", help="Only these, with commas between; repeatable; default: all.", metavar="A,B"),
]


def register(app: typer.Typer) -> None:
    """Add the verb of this file."""
    app.command()(memory)


def memory(
    model: Model,
    optimizers: Optimizers = None,
    rank_ratio: RankRatio = None,
    state_dtype: StateDtype = None,
    rule: Rules = None,
    json: Json = False,
) -> None:
    """Count parameters, gradients and optimizer state before training. It needs no service and no such memory."""
    given = [name.strip() for text in optimizers or () for name in text.split(",")]
    names = list(dict.fromkeys(given)) if given else None
    with check_model_name(model):
        from worker.footprint.count import footprint

        found = footprint(model, names, state_options(rank_ratio, state_dtype), block_rules(rule))
    if json:
        print_json(found)
        return
    _print(found)


def _print(found: "Footprint") -> None:
    from dashboards.text import formats

    out = console()
    out.print(
        f"{found.model}: {formats.count(found.parameters)} parameters, {formats.size(found.parameter_bytes)}; "
        f"gradients {formats.size(found.gradient_bytes)}. Activations come on top.\n"
    )
    out.print(_totals(found))
    out.print("\nState by kind of block:\n")
    out.print(_by_block(found))
    if any("several" in one.state_by_block for one in found.optimizers):
        out.print("\nseveral: of fused parameters, for query, key and value (or gate and up projection) together.")
    for one in found.optimizers:
        if one.unknown_because is not None:
            out.print(f"\n{one.optimizer} cannot be counted without running it ({one.unknown_because}).")
    if found.notes:
        out.print("\nPaper: arXiv 2510.09103, table 2.", *found.notes, sep="\n")


def _totals(found: "Footprint") -> "Table":
    from rich.text import Text

    from api.cli.tables.comparison import plain_table
    from dashboards.text import formats

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
        total = None if one.state_bytes is None else kept + one.state_bytes
        cells = [one.optimizer, formats.size(one.state_bytes), _saved(found, one), formats.size(total)]
        if published:
            cells.append(formats.size(one.published_bytes))
        options = ", ".join(f"{name} {value}" for name, value in one.options.items())
        table.add_row(*(Text(cell) for cell in (*cells, options)))
    return table


def _saved(found: "Footprint", one: "OptimizerFootprint") -> str:
    """The share of the baseline's state that it does without."""
    from dashboards.text import formats
    from worker.footprint.count import BASELINE

    if one.optimizer == BASELINE or one.state_bytes is None or not found.baseline_bytes:
        return formats.UNKNOWN
    saved = 1 - one.state_bytes / found.baseline_bytes
    return formats.percent(saved) if saved >= 0 else f"{formats.percent(-saved)} more"


def _by_block(found: "Footprint") -> "Table":
    """A line an optimizer, a column a kind of block; the largest kinds first, counters last."""
    from rich.text import Text

    from api.cli.tables.comparison import plain_table
    from dashboards.text import formats

    sizes: dict[str, int] = {}
    for one in found.optimizers:
        for kind, size in one.state_by_block.items():
            sizes[kind] = max(size, sizes.get(kind, 0))
    kinds = sorted(sizes, key=lambda kind: -sizes[kind])
    table = plain_table("optimizer", *(kind.replace("_", "\n") for kind in kinds), "step\ncounters")
    for one in found.optimizers:
        if one.state_bytes is not None:
            held = [one.state_by_block.get(kind, 0) for kind in kinds]
            cells = (one.optimizer, *(formats.size(size) if size else "" for size in (*held, one.counter_bytes)))
            table.add_row(*(Text(cell) for cell in cells))
    return table
