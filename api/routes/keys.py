"""Keys over REST, for admins: make, list, revoke; and the audit log."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from api.records import Page
from api.routes.context import ID_PATTERN, JsonRoute, Limit, State, cut_page, problems
from orchestrator.keys import AuditRecord, KeyRecord, KeyRequest, NewKey

router = APIRouter(tags=["keys"], route_class=JsonRoute)

KeyIdPath = Annotated[str, Path(pattern=ID_PATTERN)]


@router.post("/keys", status_code=201, responses=problems(413, 422))
def create(wanted: KeyRequest, state: State, response: Response) -> NewKey:
    """Make a key. Its secret is in this answer and nowhere else."""
    new_key = state.services.keyring.create(wanted)
    state.auth.callers.forget()
    response.headers["Location"] = f"/v1/keys/{new_key.key.id}"
    response.headers["Cache-Control"] = "no-store"
    return new_key


@router.get("/keys")
def keys(state: State) -> Page[KeyRecord]:
    """List all keys, the newest first, with what their experiments use; no secrets."""
    return Page(items=state.services.keyring.list_keys())


@router.delete("/keys/{key_id}", responses=problems(404))
def revoke(key_id: KeyIdPath, state: State) -> KeyRecord:
    """Revoke a key; its experiments continue. Repeating it changes nothing."""
    revoked = state.services.keyring.revoke(key_id)
    state.auth.callers.forget()
    return revoked


@router.get("/audit", responses=problems(422))
def audit(
    state: State,
    limit: Limit = 100,
    before: Annotated[int | None, Query(ge=1, le=2**53)] = None,
    key_id: Annotated[str | None, Query(pattern=ID_PATTERN)] = None,
) -> Page[AuditRecord]:
    """List changes, newest first: who, what, when, from where, and the outcome; `before` is the last number seen."""
    lines = state.services.audit.page(limit=limit + 1, before=before, key_id=key_id)
    return cut_page(lines, limit, lambda line: line.number)
