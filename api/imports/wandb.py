"""Weights & Biases: the files that `wandb` writes beside a training, online or offline (`run-….wandb`).

A file is a log of LevelDB's format (blocks of 32 KiB, in which records are cut) of messages of `wandb_internal.proto`.
Metrics of the machine have a time and no step: theirs is the number of the sample.
"""

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from api.imports.protobuf import Message, messages, parse_message, signed, text, texts
from api.imports.source import ReadRequest, SourceError, SourcePoint, SourceRun, find_files, reading, split_metrics
from orchestrator.external_runs import ExternalState

MAGIC = b":W&B"
BLOCK_BYTES = 2**15
HISTORY, SUMMARY, CONFIG, STATS, METRIC, RUN, EXIT, ENVIRONMENT = 2, 3, 5, 7, 12, 17, 18, 26
"""The fields of a record that are read."""
ENVIRONMENT_FACTS = {1: "os", 2: "python", 5: "args", 6: "program", 12: "host", 18: "gpu_type", 25: "cuda_version"}
RUN_FACTS = {2: "entity", 3: "project", 6: "group", 7: "job_type", 9: "notes", 12: "sweep", 13: "host"}
JOINED = ("config", "facts", "summary", "axes")
"""What a later session adds to."""


@dataclass
class _Run:
    """What one file says of its run."""

    id: str = ""
    name: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)
    axes: dict[str, str] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    points: list[SourcePoint] = field(default_factory=list)
    exit_code: int | None = None
    began: float = 0.0
    ended: float = 0.0
    not_numbers: set[str] = field(default_factory=set)


def read(request: ReadRequest) -> Iterator[SourceRun]:
    """The runs of all files; one that was resumed has several, a session each."""
    runs: dict[str, list[_Run]] = {}
    for path, _ in find_files(request.places, "*.wandb"):
        if any(each.name == "latest-run" for each in path.parents):  # a link to one of the others
            continue
        found = _Run()
        with reading(path, "a file of W&B's"):
            for record in _records(path):
                _add_record(parse_message(record), found)
        if not found.id:
            raise SourceError(f"{path} does not say which run it is of: its process was killed before it began")
        runs.setdefault(f"{found.facts.get('entity', '')}/{found.facts.get('project', '')}/{found.id}", []).append(
            found
        )
    for key, sessions in runs.items():
        sessions.sort(key=lambda session: session.began)
        run = sessions[-1]
        joined = {name: dict(chain.from_iterable(getattr(each, name).items() for each in sessions)) for name in JOINED}
        yield SourceRun(
            source_id=key,
            name=run.name or run.id,
            config=joined["config"],
            facts=joined["facts"] | ({"summary": joined["summary"]} if joined["summary"] else {}) | {"id": run.id},
            tags=tuple(dict.fromkeys(chain.from_iterable(each.tags for each in sessions))),
            sessions=tuple(each.points for each in sessions),
            counts_steps=True,
            axes=joined["axes"],
            state={None: ExternalState.RUNNING, 0: ExternalState.FINISHED}.get(run.exit_code, ExternalState.FAILED),
            started_at=sessions[0].began,
            ended_at=run.ended,
            not_numbers=set().union(*(each.not_numbers for each in sessions)),
        )


def _records(path: Path) -> Iterator[bytes]:
    """The records, as far as they are whole."""
    data = path.read_bytes()
    if not data.startswith(MAGIC):
        raise SourceError(f"{path} is no file of W&B's: it begins with {data[:4]!r}, not with {MAGIC!r}")
    place, record = 7, b""
    while place + 7 <= len(data):
        if BLOCK_BYTES - place % BLOCK_BYTES < 7:
            place += BLOCK_BYTES - place % BLOCK_BYTES
            continue
        _, length, kind = struct.unpack_from("<IHB", data, place)
        place += 7
        if kind == 0 or place + length > len(data):  # torn: its process was killed
            return
        record = (record if kind in (3, 4) else b"") + data[place : place + length]
        place += length
        if kind in (1, 4):
            yield record


def _add_record(record: Message, run: _Run) -> None:
    for found in messages(record, RUN):
        run.id, run.name = text(found, 1) or run.id, text(found, 8) or run.name
        run.tags = tuple(texts(found, 10)) or run.tags
        run.facts |= {name: value for number, name in RUN_FACTS.items() if (value := text(found, number))}
        for config in messages(found, 4):
            run.config |= _items(config, 1)
        for git in messages(found, 21):
            run.facts["git"] = {"remote": text(git, 1), "commit": text(git, 2)}
        run.began = min(filter(None, (run.began, *(_time(each) for each in messages(found, 17)))), default=0.0)
    for config in messages(record, CONFIG):
        run.config |= _items(config, 1)
    for summary in messages(record, SUMMARY):
        run.summary |= {name: each for name, each in _items(summary, 1).items() if not name.startswith("_")}
    for history in messages(record, HISTORY):
        values = _items(history, 1)
        step = int(values.pop("_step", None) or next((signed(each, 1) for each in messages(history, 2)), 0))
        at = float(values.pop("_timestamp", None) or run.began)
        run.ended = max(run.ended, at)
        run.points.append(SourcePoint(at=at, step=max(step, 0), metrics=split_metrics(values, run.not_numbers)))
    for stats in messages(record, STATS):
        values = {f"system/{name}": value for name, value in _items(stats, 3).items()}
        at = next((_time(each) for each in messages(stats, 2)), run.began)
        run.points.append(SourcePoint(at=at, step=0, metrics=split_metrics(values, run.not_numbers)))
    for metric in messages(record, METRIC):
        if axis := text(metric, 4):
            run.axes[text(metric, 1) or text(metric, 2)] = axis
    for environment in messages(record, ENVIRONMENT):
        for number, name in ENVIRONMENT_FACTS.items():
            if said := texts(environment, number):
                run.facts[name] = " ".join(said)
    for ended in messages(record, EXIT):
        run.exit_code = signed(ended, 1)
    run.config.pop("_wandb", None)


def _items(message: Message, number: int) -> dict[str, Any]:
    """The pairs of a field: names in one or in parts, and values as JSON."""
    found = {}
    for item in messages(message, number):
        name = ".".join(texts(item, 2)) or text(item, 1)
        try:
            found[name] = json.loads(text(item, 16))
        except (ValueError, RecursionError):
            found[name] = text(item, 16)
    return found


def _time(message: Message) -> float:
    return signed(message, 1) + signed(message, 2) / 1e9
