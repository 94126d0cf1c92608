"""`/keys`: for admins, the keys with what their experiments use, and who changed what. It shows no secret."""

import time

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from dashboards.render import page
from dashboards.text.words import Chip
from orchestrator.keys import KeyRecord
from orchestrator.store.admin.audit import AuditLog
from orchestrator.store.admin.keyring import Keyring

LINES_SHOWN = 100
LONGEST_ID = 64
LONGEST_NUMBER = 15
"""Digits."""


def key_pages(keyring: Keyring, audit: AuditLog) -> APIRouter:
    """The page; `?key=ID` narrows the log to one key, `before` is the last line of the page before."""
    router = APIRouter(include_in_schema=False)

    @router.get("/keys")
    def keys(request: Request) -> HTMLResponse:
        query = request.query_params
        key_id, before = query.get("key", "")[:LONGEST_ID].replace("\x00", ""), query.get("before", "")
        seen = int(before) if before.isdecimal() and len(before) <= LONGEST_NUMBER else None
        lines = audit.page(limit=LINES_SHOWN + 1, before=seen, key_id=key_id or None)
        now = time.time()
        return page(
            "keys.html",
            keys=[(key, state_chip(key, now)) for key in keyring.list_keys()],
            key_id=key_id,
            lines=lines[:LINES_SHOWN],
            is_first=seen is None,
            following=lines[LINES_SHOWN - 1].number if len(lines) > LINES_SHOWN else None,
        )

    return router


def state_chip(key: KeyRecord, now: float) -> Chip:
    """Whether it opens anything."""
    if key.revoked_at is not None:
        return Chip(text="revoked", tone="bad")
    if key.expires_at is not None and key.expires_at <= now:
        return Chip(text="expired", tone="warn")
    return Chip(text="valid", tone="good")
