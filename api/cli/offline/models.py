"""`adapm-bench models [MODEL]`: the models; of one what training it keeps under each optimizer, known before it is
trained; with `--memory` what fits a card, and with `--blocks` what an optimizer keeps for every block.
"""

import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import Annotated, Literal

import typer
from rich.table import Table

from api.cli.console import Json, complain, console, fail, print_json, refuse, text_table
from api.cli.settings import environment_settings
from api.records import model_info
from dashboards.text import formats
from dashboards.text.block_plans import fold_blocks
from optim import catalog
from optim.catalog import Scalar
from orchestrator.specs.footprints import Footprints, answer_path
from worker.catalog import presets
from worker.files import write_atomically
from worker.footprint.process import FootprintQuestion, answer
from worker.records.footprint import BASELINE, Footprint, PlannedBlock

Model = Annotated[str | None, typer.Argument(help="A model by name; default: list all.", metavar="[MODEL]")]
Blocks = Annotated[
    bool,
    typer.Option("--blocks", help="Show what AdaPM, or the optimizer in --optimizers, keeps for every block."),
]
RankRatio = Annotated[float | None, typer.Option(help="Rank of low-rank momentum over min(m, n).", metavar="R")]
StateDtype = Annotated[str | None, typer.Option(help="Type of optimizer state: fp32, bf16, int8.", metavar="TYPE")]

RulesOption = Annotated[
    list[str] | None,
    typer.Option(
        help="Moments for matching blocks: full, low-rank, none, rank:N, per:element|row|neuron|head, separated by "
        "commas. Repeatable; later rules win.",
        metavar="PATTERN=WHAT",
    ),
]
Optimizers = Annotated[
    list[str] | None, typer.Option(help="Only these, separated by commas; repeatable; default: all.", metavar="A,B")
]
Ranks = Annotated[
    int,
    typer.Option(min=1, max=65_536, help="Processes that share the model (fsdp); counts the fullest one.", metavar="N"),
]
Memory = Annotated[
    float | None,
    typer.Option(
        min=0.1,
        max=1e6,
        help="Show the largest micro-batch that fits into so many GiB of tensors; without MODEL, of every model.",
        metavar="GIB",
    ),
]
MicroBatch = Annotated[int, typer.Option(min=1, help="With --memory: sequences in a pass.", metavar="N")]
CardPrecision = Annotated[
    Literal["fp32", "bf16"], typer.Option(help="With --memory: bf16 is autocast, weights stay fp32.")
]
Length = Annotated[
    int | None,
    typer.Option(min=1, help="With --memory: tokens in a sequence; default: the model's positions.", metavar="TOKENS"),
]

DEFAULT_OPTIMIZERS = ("adamw", "adapm", "adapm-mini")
"""The optimizers that are compared by default."""


def models(
    model: Model = None,
    blocks: Blocks = False,
    optimizers: Optimizers = None,
    rank_ratio: RankRatio = None,
    state_dtype: StateDtype = None,
    rule: RulesOption = None,
    ranks: Ranks = 1,
    memory: Memory = None,
    micro_batch: MicroBatch = 1,
    precision: CardPrecision = "bf16",
    length: Length = None,
    json: Json = False,
) -> None:
    """List the models, or count one's memory under each optimizer; --memory shows the largest micro-batch that fits.
    Needs no service."""
    names = tuple(dict.fromkeys(name.strip() for text in optimizers or () for name in text.split(",")))
    dtype = {"fp32": "float32", "bf16": "bfloat16"}.get(state_dtype or "", state_dtype)
    options: dict[str, Scalar] = {"rank_ratio": rank_ratio, "state_dtype": dtype}
    question = FootprintQuestion(
        model=model or "",
        optimizers=names or None,
        options={name: value for name, value in options.items() if value is not None},
        rules=tuple(rule or ()),
        ranks=ranks,
        with_blocks=blocks,
    )
    if memory is not None:
        if blocks or ranks > 1:
            refuse("--memory counts what one process needs: leave out --blocks and --ranks")
        question = question.model_copy(update={"precision": precision, "sequence_length_tokens": length})
        if model is None:
            if rule or micro_batch > 1:
                refuse("--rule and --micro-batch are about one model; name it: adapm-bench models MODEL")
            _print_fitting_models(question, memory, json=json)
            return
        fitted = count(question).fit(memory, micro_batch)
        print_json(fitted) if json else _print_fits(fitted, memory, micro_batch)
        return
    if length is not None or micro_batch > 1 or precision != "bf16":
        refuse("--length, --micro-batch and --precision go with --memory: adapm-bench models MODEL --memory 24")
    if model is None:
        if blocks or names or question.options or rule or ranks > 1:
            refuse("these options are about one model; name it: adapm-bench models MODEL")
        _print_models(json=json)
    elif blocks:
        if len(names) > 1 or ranks > 1:
            refuse("--blocks shows one optimizer, whole: name one in --optimizers, and leave out --ranks")
        _print_blocks(count(question.model_copy(update={"optimizers": names or ("adapm",)})), json=json)
    else:
        footprint = count(question)
        print_json(footprint) if json else _print_footprint(footprint)


def count(question: FootprintQuestion) -> Footprint:
    """Return the footprint, which the same code and libraries count once: it is kept in the data folder. A fault ends
    the command with a sentence and exit code 2."""
    try:
        positions = presets.preset(question.model).max_positions
    except KeyError as error:
        refuse(str(error.args[0]))
    if (length := question.sequence_length_tokens) is not None and length > positions:
        refuse(f"--length {length}: {question.model} has {positions} positions")
    folder = environment_settings().data_folder / "footprints"
    if (known := Footprints(folder).find(question)) is not None:
        return known
    if sys.stderr.isatty():
        complain(f"counting the memory of {question.model}, once: up to a minute")
    counted = answer(question)
    if counted.footprint is None:
        refuse(counted.fault or "")
    path = answer_path(folder, question.model_dump_json())
    with suppress(OSError):  # a folder that cannot be written keeps no count
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, counted.footprint.model_dump_json())
    return counted.footprint


def _print_models(*, json: bool) -> None:
    infos = tuple(model_info(preset) for preset in presets.PRESETS)
    if json:
        print_json(infos)
        return
    columns = ("model", "family", "layers", "heads", "hidden", "positions", "vocabulary", "source")
    sizes = ("layers", "heads", "hidden_size", "max_positions", "vocabulary_size")
    rows = [(i.name, i.family, *(f"{getattr(i, size):,}" for size in sizes), i.source) for i in infos]
    console().print(text_table(columns, rows))


def _print_fits(footprint: Footprint, card_gib: float, micro_batch: int) -> None:
    """Print the optimizers that fit a card: a sentence on AdamW and AdaPM, then a line for each optimizer."""
    screen = console()
    if footprint.passes_unknown_because is not None:
        fail(f"the activations of {footprint.model} cannot be counted ({footprint.passes_unknown_because})")
    plain, checkpointed = (
        {fit.optimizer: fit for fit in footprint.fits if fit.checkpointing is way} for way in (False, True)
    )
    shown = [
        f"{fit.title} {checkpointed[name].most_sequences or 'does not fit'}"
        for name in DEFAULT_OPTIMIZERS
        if (fit := plain.get(name)) is not None
    ]
    if shown:
        screen.print(f"Largest micro-batch in {card_gib:g} GiB with activation checkpointing: {', '.join(shown)}.\n")
    columns = ("optimizer", "state", "step", "peak", "largest\nmicro-batch", "peak,\ncheckpointing",
               "largest\nmicro-batch", "limited by")  # fmt: skip
    usage_by_name = {usage.optimizer: usage for usage in footprint.optimizers}
    rows = [
        (
            name,
            formats.size(usage_by_name[name].state_bytes),
            formats.size(usage_by_name[name].transient_bytes),
            formats.size(plain[name].peak_bytes),
            f"{plain[name].most_sequences or '—'}",
            formats.size(fit.peak_bytes),
            f"{fit.most_sequences or '—'}",
            fit.limit,
        )
        for name, fit in checkpointed.items()
    ]
    screen.print(text_table(columns, rows, columns[1:-1]))
    activations = " or ".join(
        formats.size(pass_memory.peak_bytes(micro_batch) - footprint.gradient_bytes) for pass_memory in footprint.passes
    )
    screen.print(
        f"\n{footprint.model}: weights {formats.size(footprint.parameter_bytes)}, gradients "
        f"{formats.size(footprint.gradient_bytes)}, activations {activations} with checkpointing (micro-batch "
        f"{micro_batch}, {footprint.sequence_length_tokens:,} tokens, {footprint.precision}).\n"
        "Peak: weights, gradients and state, and activations or the optimizer's step, with gradient accumulation; with "
        f"one micro-batch a step it is lower, by at most the gradients. {card_gib:g} GiB = "
        f"{formats.size(card_gib * 2**30)} of tensors; the CUDA context and the allocator's gaps come on top."
    )
    for entry in footprint.optimizers:
        if entry.transient_bytes is None:
            screen.print(f"{entry.optimizer} cannot be counted without a run ({entry.unknown_because or 'its step'}).")


def _print_fitting_models(question: FootprintQuestion, card_gib: float, *, json: bool) -> None:
    """Print a line per model: the largest micro-batch under each optimizer."""
    names, length = question.optimizers or DEFAULT_OPTIMIZERS, question.sequence_length_tokens
    footprints = [
        count(question.model_copy(update={"model": preset.name, "optimizers": names})).fit(card_gib)
        for preset in map(presets.preset, presets.names())
        if length is None or length <= preset.max_positions
    ]
    if json:
        print_json(footprints)
        return
    rows = []
    for counted in footprints:
        limits = {(fit.optimizer, fit.checkpointing): fit.most_sequences for fit in counted.fits}
        cells = [
            f"{limits[name, False] or '—'} / {limits[name, True] or '—'}" if (name, True) in limits else formats.UNKNOWN
            for name in names
        ]
        rows.append((counted.model, formats.compact(counted.parameters), *cells))
    console().print(text_table(("model", "parameters", *names), rows, ("parameters", *names)))
    longest = f"{length} tokens" if length else "the model takes"
    print(
        f"\nLargest micro-batch in {card_gib:g} GiB of tensors, without / with activation checkpointing "
        f"({question.precision}, sequences as long as {longest}); — does not fit."
    )


def _print_footprint(memory: Footprint) -> None:
    screen = console()
    note = f" each of {memory.ranks} ranks (FSDP2)" if memory.ranks > 1 else ""
    screen.print(
        f"{memory.model}: {formats.count(memory.parameters)} parameters, {formats.size(memory.parameter_bytes)}{note}; "
        f"gradients {formats.size(memory.gradient_bytes)}. Activations come on top: --memory GIB counts them.\n"
    )
    screen.print(_total_table(memory))
    whole = (
        [usage.optimizer for usage in memory.optimizers if catalog.entry(usage.optimizer).sharding_fault(usage.options)]
        if memory.ranks > 1
        else []
    )
    if whole:
        screen.print(f"\nNot with execution.parallel = fsdp, since they need whole parameters: {', '.join(whole)}.")
    for usage in memory.optimizers:
        if usage.unknown_because is not None and usage.optimizer not in whole:
            screen.print(f"\n{usage.optimizer} cannot be counted without a run ({usage.unknown_because}).")


def _total_table(footprint: Footprint) -> Table:
    columns = ("state", "saved against adamw", "parameters + gradients + state")
    base_bytes, rows = footprint.parameter_bytes + footprint.gradient_bytes, []
    for usage in footprint.optimizers:
        total, saved = None if usage.state_bytes is None else base_bytes + usage.state_bytes, formats.UNKNOWN
        if usage.optimizer != BASELINE and usage.state_bytes is not None and footprint.baseline_bytes:
            share = 1 - usage.state_bytes / footprint.baseline_bytes
            saved = formats.percent(share) if share >= 0 else f"{formats.percent(-share)} more"
        figures = [formats.size(usage.state_bytes), saved, formats.size(total)]
        options = ", ".join(f"{name} {value}" for name, value in usage.options.items())
        rows.append((usage.optimizer, *figures, options))
    return text_table(("optimizer", *columns, "options"), rows, columns)


def _print_blocks(footprint: Footprint, *, json: bool) -> None:
    model, (usage,) = footprint.model, footprint.optimizers
    if not catalog.entry(usage.optimizer).has_plan:
        planned = ", ".join(entry.name for entry in catalog.entries() if entry.has_plan)
        refuse(f"{usage.optimizer} has no block plan; those that have one: {planned}")
    state_bytes = sum(block.state_bytes for block in usage.blocks)
    if json:
        print_json({"model": model, "optimizer": usage.optimizer, "state_bytes": state_bytes, "blocks": usage.blocks})
        return
    console().print(_plan_table(usage.blocks))
    share = formats.percent(state_bytes / (8 * footprint.parameters))
    print(
        f"\n{model}: {formats.count(footprint.parameters)} parameters in {len(usage.blocks)} blocks; {usage.optimizer} "
        f"keeps {formats.size(state_bytes)}, {share} of AdamW's two float32 values a parameter."
    )


def _plan_table(blocks: Iterable[PlannedBlock]) -> Table:
    rows = []
    for fold in fold_blocks(blocks):
        block = fold.first()
        rows.append(
            (
                f"{fold.title()} {block.slice or ''}".rstrip(),
                f"×{len(fold.blocks)}" if len(fold.blocks) > 1 else "",
                fold.shape(),
                fold.kind(),
                f"{block.first_moment}, r = {block.rank}" if block.rank else block.first_moment,
                f"per {block.second_moment}",
                formats.size(fold.state_bytes()),
            )
        )
    return text_table(("block", "", "shape", "kind", "first moment", "second", "state"), rows, ("", "state"))
