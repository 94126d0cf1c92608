"""Prepare a dataset once per machine, however many ask for it at the same moment and however often they are killed.

Order ──lock──► <dataset>-<tokenizer>.unfinished: tokenizer.json, shards section by section ──rename──► final name
"""

import errno
import hashlib
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

from worker.catalog import datasets
from worker.data.documents import DocumentSource, Split
from worker.data.manifest import TOKENIZER_FILE, Manifest, Order, Recipe, hash_shards
from worker.data.prepared import can_prepare, list_prepared, preparation_hint
from worker.data.sections import (
    PLACE_NAME,
    OnProgress,
    PreparationState,
    Sections,
    read_place,
    write_place,
)
from worker.data.shards import TokenDataset, open_dataset
from worker.data.sources import source_of
from worker.data.tokenizers import BpeTokenizer, ByteTokenizer, Tokenizer, token_bytes, tokenizer_file, train
from worker.errors import DISK_FULL, CorruptShardError, DataError, StorageFullError
from worker.files import UNFINISHED, hold_lock, sync

logger = logging.getLogger(__name__)

FULL: Final = DISK_FULL | {errno.EFBIG}
"""The errors of the system for an exhausted disk, quota or limit of file sizes."""


def ensure_dataset(
    dataset: str,
    tokenizer: str,
    dataset_folder: Path,
    data_hash: str | None = None,
    check_stop: Callable[[], None] = lambda: None,
) -> TokenDataset:
    """Open `<dataset>-<tokenizer>` in `dataset_folder`; what needs no download is prepared first where it is missing.
    `check_stop` is called meanwhile, and ends that by raising.

    Raises `DataError` for unknown, missing or empty datasets and for another hash than `data_hash`,
    `CorruptShardError` for damaged shards.
    """
    folder = dataset_folder / datasets.folder_name(dataset, tokenizer)
    _require_known_names(dataset, tokenizer)
    if not folder.exists():
        if not can_prepare(dataset, tokenizer):
            raise DataError(preparation_hint(dataset, tokenizer, dataset_folder))
        order = Order(dataset=dataset, tokenizer=tokenizer)
        prepare_once(source_of(dataset), order, dataset_folder, lambda reached: check_stop(), check_stop=check_stop)
    opened = open_dataset(folder)
    recipe = opened.manifest.recipe
    if (recipe.dataset, recipe.tokenizer) != (dataset, tokenizer):
        raise CorruptShardError(
            f"{folder} holds {recipe.dataset} as {recipe.tokenizer} tokens, not {dataset} as {tokenizer}. Rename it."
        )
    if data_hash not in (None, opened.manifest.data_hash):
        raise DataError(
            f"{folder} has the data hash {opened.manifest.data_hash}; the specification asks for {data_hash}. "
            "Prepare the same documents in the same way, or leave out data.data_hash."
        )
    return opened


def _require_known_names(dataset: str, tokenizer: str) -> None:
    try:
        datasets.dataset(dataset)
        datasets.tokenizer(tokenizer)
    except KeyError as error:
        raise DataError(f"{error.args[0]}. Choose one of them.") from error


def prepare_once(
    source: DocumentSource,
    order: Order,
    dataset_folder: Path,
    on_progress: OnProgress = lambda reached: None,
    say: Callable[[str], None] = logger.info,
    check_stop: Callable[[], None] = lambda: None,
    *,
    tokenizer_file: Path | None = None,
) -> Manifest:
    """Prepare what is ordered, unless it is there already; wait where another process is at it, `say` so,
    and `check_stop`. `tokenizer_file` is `tokenizer.json` or a folder with it; None: from the hub, or trained here.

    Raises `DataError` for sources and tokenizers that cannot be read, and where the same name stands for other data.
    """
    _require_known_names(order.dataset, order.tokenizer)
    recipe = _recipe(source, order, tokenizer_file)
    folder = dataset_folder / datasets.folder_name(order.dataset, order.tokenizer)
    try:
        dataset_folder.mkdir(parents=True, exist_ok=True)
        with hold_lock(folder.with_name(f"{folder.name}.lock"), say, check_stop):
            if folder.exists():
                return _require_same_recipe(Manifest.read(folder), recipe, folder)
            _refuse_other_files(recipe, dataset_folder)
            return prepare(source, recipe, folder, tokenizer_file, on_progress, say)
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise StorageFullError(
            f"no room to prepare {folder}: {error.strerror}. Make room, then repeat the command: "
            "finished shards are kept."
        ) from error


def _recipe(source: DocumentSource, order: Order, tokenizer_path: Path | None) -> Recipe:
    if order.tokenizer != "byte" and datasets.trained_size(order.tokenizer) is None:
        tokenizer_path = tokenizer_file(order.tokenizer, tokenizer_path)
        BpeTokenizer(tokenizer_path, name=order.tokenizer)  # a wrong file is refused before anything is written
    elif tokenizer_path is not None:
        raise DataError(f"the tokenizer {order.tokenizer!r} takes no file. Name your own own/<name>.")
    return Recipe(
        source_version=source.version,
        tokenizer_sha256=hashlib.sha256(tokenizer_path.read_bytes()).hexdigest() if tokenizer_path else None,
        **dict(order),
    )


def _require_same_recipe(manifest: Manifest, recipe: Recipe, folder: Path) -> Manifest:
    """Return the prepared manifest if it was made by the same recipe."""
    if manifest.recipe == recipe:
        return manifest
    fields = [name for name in Recipe.model_fields if getattr(manifest.recipe, name) != getattr(recipe, name)]
    prepared_fields = ", ".join(f"{name} = {getattr(manifest.recipe, name)}" for name in fields)
    ordered = ", ".join(f"{name} = {getattr(recipe, name)}" for name in fields)
    raise DataError(
        f"{folder} is prepared with {prepared_fields}; ordered is {ordered}. "
        "Delete the folder to replace it, or give your own files another name."
    )


def _refuse_other_files(recipe: Recipe, dataset_folder: Path) -> None:
    """Refuse other files under the same name: a comparison of tokenizers would otherwise compare texts."""
    if datasets.dataset(recipe.dataset) is not None:
        return
    for path, manifest in list_prepared(dataset_folder):
        if not isinstance(manifest, Manifest) or manifest.recipe.dataset != recipe.dataset:
            continue
        if manifest.recipe.source_version != recipe.source_version:
            raise DataError(
                f"{recipe.dataset} stands for other files already: {path} was made of "
                f"{manifest.recipe.source_version}; given are {recipe.source_version}. "
                "Choose another name, or delete that folder."
            )


def prepare(
    source: DocumentSource,
    recipe: Recipe,
    folder: Path,
    tokenizer_file: Path | None = None,
    on_progress: OnProgress = lambda reached: None,
    say: Callable[[str], None] = logger.info,
) -> Manifest:
    """Tokenise `source` into `folder`, which appears complete or not at all; go on where an earlier call broke off."""
    unfinished = folder.with_name(f"{folder.name}{UNFINISHED}")
    state = read_place(unfinished, recipe)
    if state is None:
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        state = PreparationState(recipe=recipe)
        write_place(unfinished, state)
    elif state.shards:
        say(f"going on after {state.documents} documents that are finished")
    tokenizer = _tokenizer(source, recipe, unfinished, tokenizer_file, say)
    state = Sections(source, tokenizer, unfinished, state, on_progress).write()
    for split in sorted(set(Split) - {shard.split for shard in state.shards}):
        shutil.rmtree(unfinished)  # it is complete, and of no use
        raise DataError(
            f"the dataset {state.recipe.dataset!r} has no {split} tokens "
            f"({state.documents} readable documents were found). Check that its files are there and hold text; "
            "with few documents, --validation-percent holds out more of them."
        )
    manifest = _manifest(state, tokenizer)
    (unfinished / Manifest.file_name).write_text(manifest.model_dump_json(indent=2) + "\n")
    (unfinished / PLACE_NAME).unlink()
    for leftover in unfinished.glob(f"*{UNFINISHED}"):  # of an earlier call that was killed while it wrote a file
        leftover.unlink()
    for path in (*unfinished.iterdir(), unfinished):
        sync(path)
    unfinished.rename(folder)
    logger.info("prepared %s: %d documents, %d bytes", folder, manifest.documents, manifest.size_bytes())
    return manifest


def _tokenizer(
    source: DocumentSource, recipe: Recipe, folder: Path, tokenizer_path: Path | None, say: Callable[[str], None]
) -> Tokenizer:
    """Return the tokenizer of the recipe; its file lies beside the shards, trained or copied once."""
    if recipe.tokenizer == "byte":
        return ByteTokenizer()
    path = folder / TOKENIZER_FILE
    size = datasets.trained_size(recipe.tokenizer)
    if size is None:
        shutil.copyfile(tokenizer_file(recipe.tokenizer, tokenizer_path), path)
    elif not path.exists():
        say(f"training the tokenizer {recipe.tokenizer} on {recipe.dataset}")
        train(source, size, recipe.validation_percent, path)
    return BpeTokenizer(path, name=recipe.tokenizer)


def _manifest(state: PreparationState, tokenizer: Tokenizer) -> Manifest:
    return Manifest(
        recipe=state.recipe,
        vocabulary_size=tokenizer.vocabulary_size,
        end_of_text=tokenizer.end_of_text,
        tokenizer_sha256=tokenizer.sha256,
        token_bytes=2 if token_bytes(tokenizer.vocabulary_size) == 2 else 4,
        documents=state.documents,
        skipped_documents=state.skipped_documents,
        replaced_characters=state.replaced_characters,
        text_bytes=state.text_bytes,
        shards=state.shards,
        data_hash=hash_shards(state.shards),
    )
