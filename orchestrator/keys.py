"""The callers of the service: keys with their scopes and quotas, and the audit log's lines."""

import re
from enum import StrEnum
from typing import Annotated

from pydantic import ConfigDict, Field

from orchestrator.names import KeyName
from worker.records.result import Record

SECRET = re.compile(r"adapm_(?P<id>[0-9a-z]{10})_[A-Za-z0-9_-]{43}")
"""A key as its holder has it: a fixed word that scanners for leaked secrets can look for, the id that everybody may
see, and 256 random bits."""


class Scope(StrEnum):
    """The rights of a key; each scope has all rights of the one before it."""

    VIEWER = "viewer"
    """Reads everything but keys and the audit log."""
    SUBMITTER = "submitter"
    """Submits, cancels, pauses, resumes, retries, labels, notes, clones, deletes and restores."""
    ADMIN = "admin"
    """Makes and revokes keys, reads the audit log."""

    def covers(self, other: "Scope") -> bool:
        """Return whether a key of this scope opens what asks for `other`."""
        order = list(Scope)
        return order.index(self) >= order.index(other)


class KeyRequest(Record):
    """A key to be made."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"label": "CI", "scope": "submitter", "expires_in_days": 90, "runs_at_once": 4}]
        }
    )

    label: KeyName
    """The key's holder, or its purpose."""
    scope: Scope = Scope.VIEWER
    expires_in_days: Annotated[float, Field(strict=True, gt=0, le=36_500, allow_inf_nan=False)] | None = None
    """Null never expires."""
    runs_at_once: Annotated[int, Field(strict=True, ge=0, le=1_000_000)] | None = None
    """Runs of its experiments that may be at work at the same time; null means no limit."""
    device_hours_a_day: Annotated[float, Field(strict=True, ge=0, le=1e9, allow_inf_nan=False)] | None = None
    """Device-hours of the attempts that ended within 24 hours or are at work, from which on nothing more is begun; what
    is at work then goes on. Null means no limit."""


class KeyRecord(Record):
    """A key; its secret is known to its holder alone."""

    id: str
    label: str
    scope: Scope
    created_at: float
    expires_at: float | None
    revoked_at: float | None
    last_used_at: float | None
    """The time of the last use, to the minute."""
    runs_at_once: int | None
    device_hours_a_day: float | None
    runs_at_work: int = 0
    """Runs of its experiments that are at work now."""
    device_hours_used: float = 0.0
    """The device-hours of its experiments, as `device_hours_a_day` counts them."""


class NewKey(Record):
    """A key that was just made."""

    key: KeyRecord
    secret: str
    """Shown this once; only its hash is kept."""


class AuditRecord(Record):
    """A change: its author, time, address and result. No secret and no body is ever part of it."""

    number: int
    at: float
    key_id: str | None
    """Null where no key was shown: a service without keys, or the command line on the database itself."""
    label: str | None
    """The key's, for people."""
    address: str
    """The address that the request came from."""
    action: str
    """`POST /v1/runs/{run_id}/{action}`, or `keys create` for the command line."""
    target: str
    """The subject: the address, or that of the created record."""
    outcome: int
    """The HTTP status of the answer."""
