"""The prepared data of this machine, and whether a workload can be trained with it (no numpy, no torch).

A specification names its data; whether they are there only the data folder knows. So the service asks here at
submission, and the worker finds out by itself again when it opens them.
"""

from collections.abc import Iterator
from pathlib import Path

from worker.catalog import datasets, presets
from worker.data.documents import Split
from worker.data.manifest import Manifest
from worker.data.remote_datasets import has_weights, remote_manifest
from worker.data.weights import missing_weights_hint, own_weights_folder
from worker.errors import CorruptShardError, RemoteFolderError
from worker.files import UNFINISHED
from worker.spec.run import Workload


def list_prepared(dataset_folder: Path) -> Iterator[tuple[Path, Manifest | CorruptShardError]]:
    """Yield every finished folder with its manifest, or with what is wrong with it; sorted by name."""
    for path in sorted(dataset_folder.glob(f"*/{Manifest.file_name}")):
        if path.parent.suffix == UNFINISHED:
            continue
        try:
            yield path.parent, Manifest.read(path.parent)
        except CorruptShardError as error:
            yield path.parent, error


def can_prepare(dataset: str, tokenizer: str) -> bool:
    """Return whether a run may prepare this by itself: the text is on this machine and the tokenizer needs no file."""
    entry = datasets.dataset(dataset)
    without_file = tokenizer == "byte" or datasets.trained_size(tokenizer) is not None
    return entry is not None and entry.hub is None and without_file


def preparation_hint(dataset: str, tokenizer: str, dataset_folder: Path) -> str:
    """Return the remedy for data that only a person can prepare."""
    files = " --from FILES" if datasets.dataset(dataset) is None else ""
    return (
        f"the dataset {dataset!r} is not prepared as {tokenizer!r} tokens in {dataset_folder}. "
        f"Prepare it with `adapm-bench data prepare {dataset} --tokenizer {tokenizer}{files}`."
    )


def missing_data(workload: Workload, dataset_folder: Path, dataset_url: str | None = None) -> list[str]:
    """Return a sentence for each thing that the workload needs and neither this data folder nor the remote one has."""
    data = workload.data
    folder = dataset_folder / datasets.folder_name(data.dataset, data.tokenizer)
    weights = workload.initial_weights
    sentences = [] if weights is None else list(_missing_weights(weights, dataset_folder, dataset_url))
    if datasets.dataset_kind(data.dataset) is not datasets.DataKind.TEXT:
        return sentences  # the run that needs it first prepares it
    try:
        manifest = Manifest.read(folder) if folder.exists() else None
        if manifest is None and dataset_url is not None:
            manifest = remote_manifest(folder.name, dataset_url)
    except CorruptShardError as error:
        return [*sentences, str(error)]
    except RemoteFolderError as error:
        if error.__cause__ is None and not can_prepare(data.dataset, data.tokenizer):  # no waiting helps
            return [*sentences, str(error)]
        return sentences  # away just now: the run prepares its data, or waits for them
    if manifest is not None:
        return [*sentences, *_misfits(workload, manifest)]
    if not can_prepare(data.dataset, data.tokenizer):
        sentences.append(preparation_hint(data.dataset, data.tokenizer, dataset_folder))
    return sentences


def few_held_out(manifest: Manifest, sequences: int, length: int) -> list[str]:
    """Return a warning if a prepared text holds out fewer sequences of `length` tokens than an evaluation takes."""
    held_out = manifest.tokens(Split.VALIDATION)
    count = held_out // (length + 1)
    if count >= sequences:
        return []
    outcome = f"each evaluation takes {sequences}, some of them twice" if count else "such runs will be refused"
    return [
        f"Only {held_out:,} tokens are held out for validation, {count} sequences of {length}: {outcome}. Prepare more "
        "text, raise --validation-percent, or shorten data.sequence_length_tokens."
    ]


def data_warnings(workload: Workload, dataset_folder: Path) -> list[str]:
    """Return the warnings of `few_held_out` about the workload's text, if this data folder has it."""
    data = workload.data
    folder = dataset_folder / datasets.folder_name(data.dataset, data.tokenizer)
    if datasets.dataset_kind(data.dataset) is not datasets.DataKind.TEXT or not folder.exists():
        return []
    try:
        return few_held_out(Manifest.read(folder), workload.evaluation.sequences, data.sequence_length_tokens)
    except CorruptShardError:  # `missing_data` says so
        return []


def _missing_weights(name: str, dataset_folder: Path, dataset_url: str | None) -> Iterator[str]:
    if not datasets.OWN_NAME.fullmatch(name) or own_weights_folder(name, dataset_folder).is_dir():
        return
    if dataset_url is not None:
        try:
            if has_weights(name, dataset_url):
                return
        except RemoteFolderError as error:
            if error.__cause__ is None:
                yield str(error)
            return  # away just now: the run waits for them
    yield missing_weights_hint(name, dataset_folder)


def _misfits(workload: Workload, manifest: Manifest) -> Iterator[str]:
    data, model = workload.data, presets.preset(workload.model)
    if data.data_hash not in (None, manifest.data_hash):
        yield (
            f"{data.dataset} is prepared here with the data hash {manifest.data_hash}; data.data_hash asks for "
            f"{data.data_hash}. Prepare the same documents in the same way, or leave it out."
        )
    if manifest.vocabulary_size > model.vocabulary_size and not model.vocabulary_of_tokenizer:
        yield (
            f"the tokenizer {data.tokenizer!r} has {manifest.vocabulary_size} tokens, more than the "
            f"{model.vocabulary_size} of {workload.model}. Choose a model or a tokenizer that fits."
        )
