"""Checked reads: a row's data as it was written, or `DamagedError`: checksums, and the records in columns of JSON.

A disk, a copy or a hand can change a row. What cannot be read then fails alone: who reads many rows catches the error
of each, marks what it was of, and goes on; `orchestrator/store/admin/maintenance.py` looks for all of them.
"""

import hashlib
import json
import zlib
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, TypeVar

import zstandard
from pydantic import ValidationError

from orchestrator.errors import DamagedError
from orchestrator.kinds import registry
from orchestrator.kinds.registry import ExperimentSpec
from worker.records.result import Result
from worker.schema import canonical_json, read_stored
from worker.spec.run import RunSpec

Read = TypeVar("Read")


def checksum(content: str | bytes) -> int:
    """Return the CRC-32 of a row's content, text as UTF-8: it finds every burst below 32 bits, and costs next to
    nothing."""
    return zlib.crc32(content.encode() if isinstance(content, str) else content)


def run_spec(content: object, expected: int | None) -> RunSpec:
    """Return a run's specification as `queue/submission.py` wrote it, whether or not it would be refused today."""
    spec: RunSpec = _read(partial(_stored_record, RunSpec), _intact_text(content, expected))
    return spec


def valid_run_spec(content: object, expected: int | None) -> RunSpec:
    """Return the specification of a run that is about to be trained: like `run_spec`, but raises `ValidationError` if
    today's rules refuse it."""
    text = _intact_text(content, expected)
    try:
        return RunSpec.model_validate_json(text)
    except ValidationError:
        run_spec(content, expected)
        raise


def result(content: object, expected: int | None) -> Result:
    """Return the result of a run."""
    record: Result = _read(partial(_stored_record, Result), _intact_text(content, expected))
    return record


def experiment_spec(content: object, spec_hash: str) -> ExperimentSpec:
    """Return an experiment's specification, whose hash is its checksum."""
    text = _intact_text(content, None)
    if hashlib.sha256(text.encode()).hexdigest() != spec_hash:
        raise DamagedError("is not what was written (its SHA-256 is another)")
    return _read(_experiment_spec, text)


def refusal(content: object) -> str | None:
    """Return the reason why an experiment's specification would be refused today; None if it would be accepted."""
    return _refusal(_intact_text(content, None))


def hash_as_read(content: object) -> str:
    """Return the hash of an experiment's intact specification as it is read now: where an earlier version had fields
    that are dropped, another one than its checksum. Raises `DamagedError`."""
    return _hash_as_read(_intact_text(content, None))


def chunk(content: object, expected: int | None) -> bytes:
    """Return the bytes of a chunk of a series."""
    if not isinstance(content, bytes):
        raise DamagedError("is missing")
    return _matching(content, expected)


def stored(kind: Any, content: object) -> Any:
    """Return the content of a column of JSON without a checksum, as `worker.schema.read_stored` reads it."""
    return _read(partial(read_stored, kind), _intact_text(content, None))


def unpack(content: object, expected: int | None) -> Any:
    """Return the content of compressed JSON: a probe's observation, a model's text."""
    return _read(lambda packed: json.loads(zstandard.decompress(packed)), chunk(content, expected))


def _intact_text(content: object, expected: int | None) -> str:
    if content is None:
        raise DamagedError("is missing")
    text = str(content)
    try:
        text.encode()
    except UnicodeEncodeError:  # as `database.py` reads bytes that are no text
        raise DamagedError("is not text") from None
    return _matching(text, expected)


Content = TypeVar("Content", str, bytes)


def _matching(content: Content, expected: int | None) -> Content:
    if expected is not None and checksum(content) != expected:
        raise DamagedError("is not what was written (its checksum is another)")
    return content


def _read(read: Callable[[Content], Read], content: Content) -> Read:
    try:
        return read(content)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_context=False, include_input=False)[0]
        path = ".".join(map(str, fault["loc"]))
        raise DamagedError(f"cannot be read ({path + ': ' if path else ''}{fault['msg']})") from error
    except Exception as error:  # whatever a validator or a decompressor makes of nonsense
        raise DamagedError(f"cannot be read ({type(error).__name__}: {error})") from error


RECORDS_KEPT = 8_192
"""The number of kept records: a page of an experiment of 1,000 runs is asked for again with each of their reports, and
most of them have not changed. Some kilobytes each."""


_stored_record = lru_cache(maxsize=RECORDS_KEPT)(read_stored)
_experiment_spec = lru_cache(maxsize=RECORDS_KEPT)(registry.read_stored_spec)
_refusal = lru_cache(maxsize=RECORDS_KEPT)(registry.refusal)


@lru_cache(maxsize=RECORDS_KEPT)
def _hash_as_read(text: str) -> str:
    return hashlib.sha256(canonical_json(_read(_experiment_spec, text).model_dump(mode="json"))).hexdigest()
