"""TensorBoard: event files. A folder of them is a run, and each file a session of it.

Some writers make further folders, which belong to the run above: for each series of a call (`add_scalars`), for what
trains and what evaluates, for a record of hyperparameters (`add_hparams`). Hyperparameters are those of the `hparams`
plugin, of Lightning's `hparams.yaml`, and the arguments that Hugging Face's Trainer writes as a text. TensorBoard does
not say how a run ended.
"""

import json
import struct
from collections.abc import Iterator
from contextlib import suppress
from os import SEEK_CUR
from pathlib import Path
from typing import Any

from api.imports.protobuf import Message, decimal, messages, parse_message, signed, text, texts
from api.imports.source import ReadRequest, SourcePoint, SourceRun, find_files, reading
from api.imports.tables import read_hyperparameters

HUGGING_FACE_ARGUMENTS = ("args/text_summary", "model_config/text_summary")
DTYPES = {1: ("<f", 5), 2: ("<d", 6), 3: ("<i", 7), 9: ("<q", 10)}
"""The number types of a tensor: the format of its bytes, and its field if it has no bytes."""


PARTS = ("train", "validation", "valid", "val", "eval", "test")
"""Names of folders that Keras, estimators and others write for parts of one run."""
DEEPEST = 3
"""Folders between a run and those of its series, whose tags may have slashes."""
START = 1
"""The status by which a writer says that it purges what there is from its step on."""


def read(request: ReadRequest) -> Iterator[SourceRun]:
    """Yield the runs of all folders below the places."""
    folders: dict[Path, SourceRun] = {}
    for path, way in find_files(request.places, "*tfevents*"):
        if (location := path.parent.resolve()) not in folders:
            config = read_hyperparameters(path.with_name("hparams.yaml"))
            folders[location] = SourceRun(name=way.as_posix(), config=config)
        folder = folders[location]
        with reading(path, "events of TensorBoard"):
            _read_events(path, folder)
    for location, folder in sorted(folders.items(), reverse=True):  # those within others first
        parts = [part for part in PARTS if location.parent / part in folders]
        outer = next((parent for parent in location.parents[:DEEPEST] if parent in folders), location.parent)
        names = _names_in_run(location.relative_to(outer).as_posix(), folder, is_below=outer in folders)
        if names is None and location.name in parts and (location.parent in folders or len(parts) > 1):
            outer, names = location.parent, {tag: f"{location.name}/{tag}" for tag in folder.metrics}
        if names is not None:
            for session in folder.sessions:
                for point in session:
                    renamed = {names[tag]: value for tag, value in point.metrics.items()}
                    point.metrics.clear()
                    point.metrics.update(renamed)
            folders.setdefault(outer, SourceRun(name=folder.name.rpartition("/")[0] or outer.name)).add(folder)
            del folders[location]
    for _, folder in sorted(folders.items()):
        for tag in HUGGING_FACE_ARGUMENTS:
            with suppress(ValueError, KeyError, TypeError):
                arguments = json.loads(folder.facts["texts"][tag])
                folder.config = dict(arguments if tag.startswith("args") else {"model": arguments}) | folder.config
                del folder.facts["texts"][tag]
        yield folder


def _names_in_run(way: str, folder: SourceRun, *, is_below: bool) -> dict[str, str] | None:
    """Return the names of a folder's tags in the run of the folder above, at that path from it; None if the folder is a
    run of its own."""
    if not is_below:
        return None
    if folder.config and all(point.step == 0 for point in folder.points):
        # The run's own hyperparameters, and its last figures without a step.
        return {tag: tag for tag in folder.metrics}
    flat = way.replace("/", "_")
    series = {tag: flat.removeprefix(f"{tag.replace('/', '_')}_") for tag in folder.metrics}
    if series and flat not in series.values():
        return {tag: f"{tag}/{name}" for tag, name in series.items()}
    return None


def _read_events(path: Path, folder: SourceRun) -> None:
    """Yield the events, each after its length and checksum; one torn at the end is not there yet."""
    size = path.stat().st_size
    folder.sessions = [*folder.sessions, []]
    with path.open("rb") as file:
        while len(head := file.read(12)) == 12:
            (length,) = struct.unpack_from("<Q", head)
            offset = file.tell()
            if offset + length + 4 > size:
                return
            try:
                _read_event(parse_message(file.read(length)), folder)
            except (ValueError, struct.error, OverflowError):
                folder.not_numbers.add(f"{path.name} from byte {offset:,} on, which is damaged")
                return
            file.seek(4, SEEK_CUR)


def _read_event(event: Message, folder: SourceRun) -> None:
    moment, step = decimal(event, 1) or 0.0, signed(event, 2)
    if step > 0 and any(signed(log, 1) == START for log in messages(event, 7)):
        folder.sessions[-1].append(SourcePoint(at=moment, step=step, metrics={}))
    for summary in messages(event, 5):
        for value in messages(summary, 1):
            tag = text(value, 1)
            plugins = [plugin for metadata in messages(value, 9) for plugin in messages(metadata, 1)]
            number = decimal(value, 2)
            tensors = messages(value, 8)
            if number is None and tensors:
                number = _tensor_number(tensors[-1])
            if any(text(plugin, 1) == "hparams" for plugin in plugins):
                for plugin in plugins:
                    for content in messages(plugin, 2):
                        for start in messages(content, 3):
                            folder.config |= dict(_hyperparameters(start))
            elif number is not None:
                session = folder.sessions[-1]
                last = session[-1] if session else None
                if last is not None and last.step == step and tag not in last.metrics:
                    last.metrics[tag] = number
                elif step >= 0:
                    session.append(SourcePoint(at=moment, step=step, metrics={tag: number}))
            elif tensors and (strings := texts(tensors[-1], 8)):
                folder.facts.setdefault("texts", {})[tag] = "\n".join(strings)
            else:
                folder.not_numbers.add(tag)


def _hyperparameters(start: Message) -> Iterator[tuple[str, Any]]:
    for pair in messages(start, 1):
        for value in messages(pair, 2):
            texts_or_truths = text(value, 3) if 3 in value else bool(signed(value, 4)) if 4 in value else None
            yield text(pair, 1), decimal(value, 2) if 2 in value else texts_or_truths


def _tensor_number(tensor: Message) -> float | None:
    """Return the number of a tensor that has exactly one, else None."""
    if any(signed(size, 1) != 1 for shape in messages(tensor, 2) for size in messages(shape, 2)):
        return None
    form, single = DTYPES.get(signed(tensor, 1), ("", 0))
    content = (tensor.get(4) or [b""])[-1]
    value = content if content != b"" else (tensor.get(single) or [b""])[-1]
    if isinstance(value, int):
        return float(value)
    return float(struct.unpack(form, value)[0]) if form and len(value) == struct.calcsize(form) else None
