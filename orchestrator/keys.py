"""What the service knows of its callers: keys with their scopes and quotas, and the audit log's lines."""

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
    """What a key opens; each scope has all that the one before it has."""

    VIEWER = "viewer"
    """Reads everything but keys and the audit log."""
    SUBMITTER = "submitter"
    """Submits, cancels, pauses, resumes, retries, labels, notes, clones, deletes and restores."""
    ADMIN = "admin"
    """Makes and revokes keys, reads the audit log."""

    def covers(self, other: "Scope") -> bool:
        """Whether a key of this scope opens what asks for `other`."""
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
    """Whose it is, or what it is for."""
    scope: Scope = Scope.VIEWER
    expires_in_days: Annotated[float, Field(strict=True, gt=0, le=36_500, allow_inf_nan=False)] | None = None
    """Null never expires."""
    runs_at_once: Annotated[int, Field(strict=True, ge=0, le=1_000_000)] | None = None
    """Runs of its experiments that may be at work at the same time; null is no limit."""
    device_hours_a_day: Annotated[float, Field(strict=True, ge=0, le=1e9, allow_inf_nan=False)] | None = None
    """Device-hours of the attempts that ended within 24 hours or are at work, from which on nothing more is begun; what
    is at work then goes on. Null is no limit."""


class KeyRecord(Record):
    """One key; its secret is known to its holder alone."""

    id: str
    label: str
    scope: Scope
    created_at: float
    expires_at: float | None
    revoked_at: float | None
    last_used_at: float | None
    """To the minute."""
    runs_at_once: int | None
    device_hours_a_day: float | None
    runs_at_work: int = 0
    """Runs of its experiments that are at work now."""
    device_hours_used: float = 0.0
    """Of its experiments, as `device_hours_a_day` counts them."""


class NewKey(Record):
    """A key that was just made."""

    key: KeyRecord
    secret: str
    """Shown this once; only its hash is kept."""


class AuditRecord(Record):
    """Who changed what, when, from where, and what came of it. No secret and no body is ever part of it."""

    number: int
    at: float
    key_id: str | None
    """Null where no key was shown: a service without keys, or the command line on the database itself."""
    label: str | None
    """The key's, for people."""
    address: str
    """Where the request came from."""
    action: str
    """`POST /v1/runs/{run_id}/{action}`, or `keys create` for the command line."""
    target: str
    """What it was about: the address, or that of what was made."""
    outcome: int
    """The HTTP status of the answer."""
