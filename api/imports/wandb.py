"""Weights & Biases: the files that `wandb` writes beside a training, online or offline (`run-….wandb`).

A file is a log of LevelDB's format (blocks of 32 KiB, in which records are cut) of messages of `wandb_internal.proto`.
Metrics of the machine have no step of the training, and are left out.
"""

import json
import struct
from collections.abc import Iterator
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Any

from api.imports.protobuf import Message, messages, parse_message, signed, text, texts
from api.imports.source import (
    ReadRequest,
    SourceError,
    SourcePoint,
    SourceRun,
    find_files,
    reading,
    split_metrics,
)
from orchestrator.external_runs import ExternalState

MAGIC = b":W&B"
BLOCK_BYTES = 2**15
HISTORY, SUMMARY, CONFIG, METRIC, RUN, EXIT = 2, 3, 5, 12, 17, 18
"""The fields of a record that are read."""
RUN_FACTS = {1: "id", 2: "entity", 3: "project", 6: "group", 7: "job_type", 9: "notes", 12: "sweep", 13: "host"}


def read(request: ReadRequest) -> Iterator[SourceRun]:
    """Yield the runs of all files; one that was resumed has several, a session each."""
    runs: dict[str, list[SourceRun]] = {}
    for path, way in find_files(request.places, "*.wandb"):
        if "latest-run" in way.parts:  # in a packed folder what was a link is a copy of another one
            continue
        session = SourceRun(name="", sessions=[[]], counts_steps=True, state=ExternalState.RUNNING)
        with reading(path, "a file of W&B's"):
            for record in _records(path):
                _add_record(parse_message(record), session)
        if "id" not in session.facts:
            request.empty.append(path)
            continue
        session.source_id = "/".join(session.facts.get(name, "") for name in ("entity", "project", "id"))
        runs.setdefault(session.source_id, []).append(session)
    for sessions in runs.values():
        run, *later = sorted(sessions, key=lambda session: session.started_at)
        for session in later:
            run.add(session)
        run.name = (later or [run])[-1].name or run.facts["id"]
        # Into the last step goes what a run has in its summary alone, as a loss that was taken once it had ended.
        logged_names = {name for point in run.points for name in point.metrics}
        # The lowest value of a logged metric, say, is in a mapping under the metric's name.
        summary = {name: value for name, value in run.facts.get("summary", {}).items() if name not in logged_names}
        metrics = {name: value for name, value in split_metrics(summary, set()).items() if name not in logged_names}
        last = max(run.sessions[-1], key=attrgetter("step"), default=None)
        if metrics and last is not None:
            run.sessions[-1].append(replace(last, metrics=metrics))
        yield run


def _records(path: Path) -> Iterator[bytes]:
    """Yield the records, as far as they are whole."""
    data = path.read_bytes()
    if not data.startswith(MAGIC):
        raise SourceError(f"{path} is not a file of W&B's: it begins with {data[:4]!r}, not with {MAGIC!r}")
    offset, record = 7, bytearray()
    while offset + 7 <= len(data):
        if BLOCK_BYTES - offset % BLOCK_BYTES < 7:
            offset += BLOCK_BYTES - offset % BLOCK_BYTES
            continue
        _, length, kind = struct.unpack_from("<IHB", data, offset)
        offset += 7
        if kind == 0 or offset + length > len(data):  # torn: its process was killed
            return
        if kind in (1, 2):
            record.clear()
        record += data[offset : offset + length]
        offset += length
        if kind in (1, 4):
            yield bytes(record)


def _add_record(record: Message, run: SourceRun) -> None:
    for run_message in messages(record, RUN):
        run.name = text(run_message, 8) or run.name
        run.tags = tuple(texts(run_message, 10)) or run.tags
        run.facts |= {name: value for number, name in RUN_FACTS.items() if (value := text(run_message, number))}
        for config in messages(run_message, 4):
            run.config |= _items(config, 1)
        run.started_at = min(filter(None, (run.started_at, *map(_time, messages(run_message, 17)))), default=0.0)
    for config in messages(record, CONFIG):
        run.config |= _items(config, 1)
    for summary in messages(record, SUMMARY):
        values = {name: value for name, value in _items(summary, 1).items() if not name.startswith("_")}
        run.facts["summary"] = run.facts.get("summary", {}) | values
    for history in messages(record, HISTORY):
        values = _items(history, 1)
        step = int(values.pop("_step", None) or next((signed(message, 1) for message in messages(history, 2)), 0))
        moment = float(values.pop("_timestamp", None) or run.started_at)
        metrics = split_metrics(values, run.not_numbers)
        run.sessions[0].append(SourcePoint(at=moment, step=max(step, 0), metrics=metrics))
    for metric in messages(record, METRIC):
        if axis := text(metric, 4):
            run.axes[text(metric, 1) or text(metric, 2)] = axis
    for ended in messages(record, EXIT):
        run.state = ExternalState.FAILED if signed(ended, 1) else ExternalState.FINISHED
    run.config.pop("_wandb", None)


def _items(message: Message, number: int) -> dict[str, Any]:
    """Return the pairs of a field: names in one or in parts, and values as JSON."""
    values = {}
    for item in messages(message, number):
        name = ".".join(texts(item, 2)) or text(item, 1)
        try:
            values[name] = json.loads(text(item, 16))
        except (ValueError, RecursionError):
            values[name] = text(item, 16)
    return values


def _time(message: Message) -> float:
    return signed(message, 1) + signed(message, 2) / 1e9
