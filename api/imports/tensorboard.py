"""TensorBoard: event files, one run for each folder of them.

Hyperparameters are those of its `hparams` plugin, which torch writes into a folder of their own below the run's, and
the arguments that Hugging Face's Trainer writes as a text. TensorBoard does not say how a run ended.
"""

import json
import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from os import SEEK_CUR
from pathlib import Path
from typing import Any

from api.imports.protobuf import Message, WireError, decimal, messages, parse_message, signed, text, texts
from api.imports.source import ReadRequest, SourcePoint, SourceRun, find_files

HUGGING_FACE_ARGUMENTS = ("args/text_summary", "model_config/text_summary")
DTYPES = {1: ("<f", 5), 2: ("<d", 6), 3: ("<i", 7), 9: ("<q", 10)}
"""Of a tensor's number: how its bytes are read, and the field that has it where it has no bytes."""


@dataclass
class _Folder:
    """What the event files of one folder say."""

    name: str
    config: dict[str, Any] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    points: dict[tuple[int, str], tuple[float, float]] = field(default_factory=dict)
    """(time, value) by step and tag; of several the one that was written last counts."""
    not_numbers: set[str] = field(default_factory=set)
    began: float = math.inf
    ended: float = 0.0
    damaged: list[str] = field(default_factory=list)


def read(request: ReadRequest) -> Iterator[SourceRun]:
    """The runs of all folders below the places."""
    folders: dict[Path, _Folder] = {}
    for path, way in find_files(request.places, "*tfevents*"):
        folder = folders.setdefault(path.parent.resolve(), _Folder(way.as_posix()))
        _read_events(path, folder)
    for place, folder in sorted(folders.items(), reverse=True):  # those within others first
        outer = folders.get(place.parent)
        if outer is not None and folder.config and not outer.config and {step for step, _ in folder.points} <= {0}:
            # `add_hparams` of torch: the run's own hyperparameters and its last figures, which have no step.
            outer.config = folder.config
            outer.points = folder.points | outer.points
            del folders[place]
    for _, folder in sorted(folders.items()):
        yield _run(folder)


def _run(folder: _Folder) -> SourceRun:
    at_step: dict[int, dict[str, float]] = {}
    when: dict[int, float] = {}
    for (step, tag), (at, value) in sorted(folder.points.items()):
        at_step.setdefault(step, {})[tag] = value
        when[step] = max(at, when.get(step, 0.0))
    config = folder.config
    for tag in HUGGING_FACE_ARGUMENTS:
        try:
            arguments = json.loads(folder.texts.get(tag, "").strip())
        except ValueError:
            continue
        if isinstance(arguments, dict):
            config = (arguments if tag.startswith("args") else {"model": arguments}) | config
            del folder.texts[tag]
    return SourceRun(
        source_id=None,
        name=folder.name,
        config=config,
        facts={"texts": folder.texts} if folder.texts else {},
        sessions=(tuple(SourcePoint(at=when[step], step=step, metrics=metrics) for step, metrics in at_step.items()),),
        started_at=folder.began if math.isfinite(folder.began) else 0.0,
        ended_at=folder.ended,
        not_numbers={*folder.not_numbers, *folder.damaged},
    )


def _read_events(path: Path, folder: _Folder) -> None:
    """Length, checksum, event, checksum, and so on; what is torn at the end is not there yet."""
    size = path.stat().st_size
    with path.open("rb") as file:
        while len(head := file.read(12)) == 12:
            (length,) = struct.unpack_from("<Q", head)
            place = file.tell()
            if place + length + 4 > size:
                return
            try:
                _read_event(parse_message(file.read(length)), folder)
            except (WireError, struct.error, OverflowError):
                folder.damaged.append(f"{path.name} from byte {place:,} on, which is damaged")
                return
            file.seek(4, SEEK_CUR)


def _read_event(event: Message, folder: _Folder) -> None:
    at, step = decimal(event, 1) or 0.0, signed(event, 2)
    folder.began, folder.ended = min(folder.began, at), max(folder.ended, at)
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
                if step >= 0:
                    folder.points[step, tag] = at, number
            elif tensors and (found := texts(tensors[-1], 8)):
                folder.texts[tag] = "\n".join(found)
            else:
                folder.not_numbers.add(tag)


def _hyperparameters(start: Message) -> Iterator[tuple[str, Any]]:
    for pair in messages(start, 1):
        for value in messages(pair, 2):
            kind = next(iter(value), 1)
            yield (
                text(pair, 1),
                {
                    2: lambda value=value: decimal(value, 2),
                    3: lambda value=value: text(value, 3),
                    4: lambda value=value: bool(signed(value, 4)),
                }.get(kind, lambda: None)(),
            )


def _tensor_number(tensor: Message) -> float | None:
    """The number of a tensor that has one."""
    if any(signed(size, 1) != 1 for shape in messages(tensor, 2) for size in messages(shape, 2)):
        return None
    form, single = DTYPES.get(signed(tensor, 1), ("", 0))
    content = (tensor.get(4) or [b""])[-1]
    value = content if content != b"" else (tensor.get(single) or [b""])[-1]
    if isinstance(value, int):
        return float(value)
    return float(struct.unpack(form, value)[0]) if form and len(value) == struct.calcsize(form) else None
