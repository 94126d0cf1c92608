"""Pages on the service itself, and what needs somebody, for other pages too: sentences about what stands in the way of
runs, each with the way out.

/queue    what runs, what waits and until when, what broke, who leads
/keys     for admins: the keys with what their experiments use, and who changed what; it shows no secret
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from dashboards.render import page
from dashboards.text import formats
from dashboards.text.words import Chip, Tone
from dashboards.view_state import number_of
from orchestrator.activity import DISPATCHER, Activity, Leader, RunAtWork
from orchestrator.keys import KeyRecord
from orchestrator.services.monitor import Monitor
from orchestrator.store.admin.audit import AuditLog
from orchestrator.store.admin.keyring import Keyring
from worker.words import pluralize

WAITING_SHOWN = 100
SILENT_SECONDS = 60.0
"""Twice a lease: a worker that has said nothing for so long will be given up."""
LINES_SHOWN = 100
LONGEST_ID = 64


def queue_pages(monitor: Monitor) -> APIRouter:
    """Return the page of the queue."""
    router = APIRouter(include_in_schema=False)

    @router.get("/queue")
    def queue() -> HTMLResponse:
        version, activity = monitor.version(), monitor.activity(waiting=WAITING_SHOWN)
        return page(
            "service/queue.html",
            version=version,
            activity=activity,
            leader=dispatcher(activity),
            concerns=concerns(activity, monitor.dispatch_blocker()),
        )

    return router


@dataclass(frozen=True, kw_only=True)
class Concern:
    """A matter that needs somebody's attention."""

    text: str
    tone: Tone = "warn"
    link: str | None = None


def concerns(activity: Activity, dispatch_blocker: str | None) -> tuple[Concern, ...]:
    """Return all concerns of the moment, those that stop everything first."""
    all_concerns = [Concern(text=dispatch_blocker, tone="bad")] if dispatch_blocker else []
    if activity.waiting_total and dispatcher(activity) is None:
        waiting = pluralize(activity.waiting_total, "run waits", "runs wait")
        text = f"{waiting}, but no dispatcher is running; start one with adapm-bench up."
        all_concerns.append(Concern(text=text, tone="bad"))
    unplaceable = [run for run in activity.waiting if run.position is None]
    if unplaceable:
        waiting = pluralize(len(unplaceable), "run waits", "runs wait")
        text = f"{waiting} for more CPUs or GPUs than any node of the cluster has."
        all_concerns.append(Concern(text=text, link=f"/runs/{unplaceable[0].run_id}"))
    all_concerns += silence(activity.at_work)
    if activity.failed_runs:
        number = activity.failed_runs
        text = f"{pluralize(number, 'run')} failed in the last 24 hours; see why, or retry."
        all_concerns.append(Concern(text=text, tone="bad", link="/queue#failures"))
    return tuple(all_concerns)


def silence(runs: Iterable[RunAtWork]) -> list[Concern]:
    """Return what to say of the runs whose worker has said nothing for long, if there are any."""
    silent = [run.silent_seconds or 0.0 for run in runs if (run.silent_seconds or 0.0) > SILENT_SECONDS]
    if not silent:
        return []
    longest = formats.duration(max(silent))
    text = f"No report from {pluralize(len(silent), 'run')} for up to {longest}; without one the lease expires."
    return [Concern(text=text, link="/queue#at-work")]


def dispatcher(activity: Activity) -> Leader | None:
    """Return the dispatcher that leads; None if no lease is current."""
    dispatchers = (leader for leader in activity.leaders if leader.role == DISPATCHER and leader.expires_in_seconds > 0)
    return next(dispatchers, None)


def key_pages(keyring: Keyring, audit: AuditLog) -> APIRouter:
    """Return the page of keys; `?key=ID` narrows the log to one key, `before` is the last line of the page before."""
    router = APIRouter(include_in_schema=False)

    @router.get("/keys")
    def keys(request: Request) -> HTMLResponse:
        query = request.query_params
        key_id, cursor = query.get("key", "")[:LONGEST_ID].replace("\x00", ""), number_of(query.get("before", ""))
        lines = audit.page(limit=LINES_SHOWN + 1, before=cursor, key_id=key_id or None)
        now = time.time()
        return page(
            "service/keys.html",
            keys=[(key, state_chip(key, now)) for key in keyring.list_keys()],
            key_id=key_id,
            lines=lines[:LINES_SHOWN],
            is_first=cursor is None,
            following=lines[LINES_SHOWN - 1].number if len(lines) > LINES_SHOWN else None,
        )

    return router


def state_chip(key: KeyRecord, now: float) -> Chip:
    """Return whether it opens anything."""
    if key.revoked_at is not None:
        return Chip(text="revoked", tone="bad")
    if key.expires_at is not None and key.expires_at <= now:
        return Chip(text="expired", tone="warn")
    return Chip(text="valid", tone="good")
