"""`adapm-bench data ls|prepare|push`: what runs train on. It needs no service."""

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from api.cli.console import (
    FAILED,
    INTERRUPTED,
    Json,
    ProgressLine,
    complain,
    console,
    fail,
    print_json,
    refuse,
    text_table,
)
from api.cli.settings import Data, environment_settings
from dashboards.text import formats
from orchestrator.settings import Settings
from worker.catalog import datasets
from worker.data.documents import Split
from worker.data.files import READERS
from worker.data.manifest import ConversationManifest, Manifest, Order
from worker.data.preparation import prepare_once
from worker.data.prepared import few_held_out, list_prepared
from worker.data.remote_datasets import push as push_folder
from worker.data.sections import SectionProgress
from worker.data.sources import source_of
from worker.data.weights import OWN_FOLDER
from worker.errors import WorkerError
from worker.files import UNFINISHED
from worker.spec.run import DataSpec, Evaluation
from worker.words import pluralize

UNITS = {"": 1, "K": 10**3, "M": 10**6, "B": 10**9}

Dataset = Annotated[str, typer.Argument(help="A dataset by name, or own/NAME for your own files.", metavar="DATASET")]
Names = Annotated[
    list[str] | None, typer.Argument(help="Only these, as DATASET-TOKENIZER, or weights/NAME.", metavar="[NAME]...")
]
Verify = Annotated[
    bool, typer.Option("--verify", help="Read every prepared shard, and compare it with its hash; exit code 1: damage.")
]
TokenizerName = Annotated[str, typer.Option(help="byte, gpt2, llama2, llama3, bpe-SIZE (trained here) or own/NAME.")]
TokenizerFile = Annotated[
    Path | None, typer.Option(help="tokenizer.json or a folder with it; default: from the hub.", metavar="PATH")
]
From = Annotated[
    list[str] | None,
    typer.Option(
        "--from", help="File, folder or pattern: .txt, .md, .jsonl, .parquet, .gz; repeatable.", metavar="PATH"
    ),
]
Column = Annotated[str, typer.Option(help="Field of JSON lines, or column of Parquet, with the text.")]
TokensOption = Annotated[
    str | None, typer.Option(help="Stop after this many training tokens: 500000, 10M, 1.5B.", metavar="N")
]
Documents = Annotated[str | None, typer.Option(help="Stop after this many documents: 500000, 10M.", metavar="N")]
Percent = Annotated[int, typer.Option(help="Percentage of the documents to hold out.", min=1, max=50)]

verbs = typer.Typer(help="List, prepare and copy datasets.", no_args_is_help=True)


@verbs.command()
def ls(verify: Verify = False, data: Data = None, json: Json = False) -> None:
    """List the datasets, and those prepared in the data folder."""
    folder = environment_settings(data_folder=data).storage().datasets_folder()
    catalog = [{"name": entry.name, "summary": entry.summary, "licence": entry.licence} for entry in datasets.DATASETS]
    prepared = list(_texts(folder, verify=verify))
    is_damaged = verify and any("error" in entry or entry.get("faults") for entry in prepared)
    if json:
        print_json({"datasets": catalog, "prepared": prepared})
    else:
        _print_datasets(folder, catalog, prepared)
    if is_damaged:
        raise typer.Exit(FAILED)


def _print_datasets(folder: Path, catalog: list[dict[str, str]], prepared: list[dict[str, Any]]) -> None:
    screen = console()
    screen.print(text_table(("dataset", "what it is", "licence"), (tuple(entry.values()) for entry in catalog)))
    print("your own files: adapm-bench data prepare own/NAME --from FILES\n")
    columns = ("prepared", "tokenizer", "vocabulary", "training", "validation", "shards", "size", "data hash")
    if prepared:
        screen.print(text_table(columns, map(_row, prepared)))
    else:
        print(f"nothing is prepared in {folder}")
    for path in sorted(folder.glob(f"*{UNFINISHED}")):
        print(f"{path.stem} is unfinished; the command that began it continues it")
    for entry in prepared:
        if "error" in entry:
            complain(str(entry["error"]))
        for fault in entry.get("faults", ()):
            complain(fault)


def _texts(folder: Path, *, verify: bool) -> Iterator[dict[str, Any]]:
    """Yield the prepared texts, as JSON; where they are verified with the faults of their shards."""
    for path, manifest in list_prepared(folder):
        if isinstance(manifest, Exception):
            yield {"folder": path, "error": str(manifest)}
            continue
        yield {
            "dataset": manifest.recipe.dataset,
            "tokenizer": manifest.recipe.tokenizer,
            "vocabulary_size": manifest.vocabulary_size,
            "training_tokens": manifest.tokens(Split.TRAIN),
            "validation_tokens": manifest.tokens(Split.VALIDATION),
            "documents": manifest.documents,
            "skipped_documents": manifest.skipped_documents,
            "shards": len(manifest.shards),
            "size_bytes": manifest.size_bytes(),
            "data_hash": manifest.data_hash,
            "source_version": manifest.recipe.source_version,
            "folder": path,
            **({"faults": list(manifest.faults(path))} if verify else {}),
        }


def _row(entry: dict[str, Any]) -> tuple[str, ...]:
    if "error" in entry or entry.get("faults"):
        return (entry["folder"].name, "damaged", *("" for _ in range(6)))
    return (
        entry["dataset"],
        entry["tokenizer"],
        f"{entry['vocabulary_size']:,}",
        f"{entry['training_tokens']:,}",
        f"{entry['validation_tokens']:,}",
        f"{entry['shards']}",
        formats.size(entry["size_bytes"]),
        entry["data_hash"][:12],
    )


@verbs.command()
def prepare(
    dataset: Dataset,
    tokenizer: TokenizerName = "byte",
    tokenizer_file: TokenizerFile = None,
    from_: From = None,
    column: Column = "text",
    tokens: TokensOption = None,
    documents: Documents = None,
    validation_percent: Percent = 2,
    data: Data = None,
    json: Json = False,
) -> None:
    """Tokenise a dataset into the data folder; an interrupted preparation continues where it stopped."""
    limits = {"tokens": _count("--tokens", tokens), "documents": _count("--documents", documents)}
    order = Order(dataset=dataset, tokenizer=tokenizer, validation_percent=validation_percent, **limits)
    settings = environment_settings(data_folder=data)
    folder = settings.storage().datasets_folder() / datasets.folder_name(dataset, tokenizer)
    try:
        source = source_of(dataset, from_ or [], column)
        if passed_over := getattr(source, "passed_over", ""):
            complain(f"skipped: {passed_over}; readable are {', '.join(READERS)}, and .gz of all but Parquet")
        complain(f"preparing {folder}")
        with ProgressLine(quiet=json) as line:
            progress = PreparationProgress(line, source.total_bytes, order)
            manifest = prepare_once(
                source,
                order,
                settings.storage().datasets_folder(),
                progress.update,
                complain,
                tokenizer_file=tokenizer_file,
            )
    except KeyboardInterrupt:
        fail("stopped; the same command continues from the last finished shard", INTERRUPTED)
    except (WorkerError, OSError) as error:
        fail(str(error))
    _copy(folder, settings)
    if json:
        print_json(manifest)
        return
    print(f"{dataset} as {tokenizer} tokens: {manifest.documents:,} documents, data hash {manifest.data_hash}")
    if manifest.skipped_documents:
        complain(f"skipped: {pluralize(manifest.skipped_documents, 'document')} without text, or unreadable")
    if manifest.replaced_characters:
        replaced = pluralize(manifest.replaced_characters, "character")
        complain(f"replaced by U+FFFD: {replaced} that no text has (NUL, or half of a surrogate pair)")
    for sentence in few_held_out(manifest, Evaluation().sequences, DataSpec().sequence_length_tokens):
        complain(sentence)
    print(f"to use it in a specification: data: {{dataset: {dataset}, tokenizer: {tokenizer}}}")


def _count(option: str, text: str | None) -> int | None:
    """Return 10,000,000 for `10M`."""
    if text is None:
        return None
    matched = re.fullmatch(r"(\d+(?:\.\d+)?)([KMB]?)", text.upper().replace(",", ""))
    count = round(float(matched[1]) * UNITS[matched[2]]) if matched else 0
    if count < 1:
        refuse(f"{option} {text} is not a count; write 500000, 10M or 1.5B")
    return count


@verbs.command()
def push(names: Names = None, data: Data = None, json: Json = False) -> None:
    """Copy prepared datasets and own weights to the remote folder, where runs on other machines fetch them."""
    settings = environment_settings(data_folder=data)
    if settings.dataset_url is None:
        refuse("no remote folder is configured; set ADAPM_BENCH_DATASET_URL=s3://BUCKET/PREFIX (docs/deployment.md)")
    folder = settings.storage().datasets_folder()
    prepared = {path.parent for kind in (Manifest, ConversationManifest) for path in folder.glob(f"*/{kind.file_name}")}
    finished = sorted(path for path in prepared if path.suffix != UNFINISHED)
    weights = sorted(folder.glob(f"{OWN_FOLDER}/*/"))
    finished += [path for path in weights if datasets.OWN_NAME.fullmatch(f"own/{path.name}")]
    paths_by_name = {path.relative_to(folder).as_posix(): path for path in finished}
    wanted = {name: path for name, path in paths_by_name.items() if not names or name in names}
    if strangers := set(names or ()) - set(paths_by_name):
        fail(f"not prepared here: {', '.join(sorted(strangers))}; prepared: {', '.join(paths_by_name) or 'nothing'}")
    if not wanted:
        fail(f"nothing is prepared in {folder}")
    for path in wanted.values():
        _copy(path, settings)
    if json:
        print_json([{"folder": path, "url": f"{settings.dataset_url}/{name}"} for name, path in wanted.items()])


def _copy(folder: Path, settings: Settings) -> None:
    """Copy a folder of data or weights there, if there is a remote folder; ends the command where that fails."""
    if settings.dataset_url is None:
        return
    name = folder.relative_to(settings.storage().datasets_folder())
    url = f"{settings.dataset_url}/{name.parent.as_posix()}" if name.parent.name else settings.dataset_url
    try:
        push_folder(folder, url, complain)
    except (WorkerError, OSError) as error:
        fail(f"{name} is prepared here, but not copied: {error} Then: adapm-bench data push {name}")
    complain(f"{name} is at {settings.dataset_url}/{name}")


class PreparationProgress:
    """Shows what a preparation has reached, towards the tokens, documents or bytes that it will end with."""

    def __init__(self, line: ProgressLine, total_bytes: int | None, order: Order) -> None:
        """`total_bytes` is the size of the source, where it is known."""
        self._line, self._total_bytes, self._order = line, total_bytes, order
        self._first_bytes, self._started = 0, 0.0

    def update(self, reached: SectionProgress) -> None:
        """Show the documents, bytes and tokens so far."""
        order, now = self._order, time.monotonic()
        if not self._started:  # what an earlier call had finished is no speed of this one
            self._first_bytes, self._started = reached.text_bytes, now
        elif now > self._started:
            amount, total = reached.text_bytes, self._total_bytes
            if order.tokens or order.documents:
                amount = reached.training_tokens if order.tokens else reached.documents
                total = order.tokens or order.documents
            rate = (reached.text_bytes - self._first_bytes) / 1e6 / (now - self._started)
            self._line.show(
                f"{order.dataset}: {reached.documents:,} documents, {reached.training_tokens:,} training tokens, "
                f"{reached.text_bytes / 1e6:,.0f} MB, {rate:.1f} MB/s" + (f", {amount / total:.0%}" if total else "")
            )
