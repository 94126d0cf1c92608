"""Keys, logins and the audit log, on both databases."""

import pytest
import sqlalchemy as sa
from pydantic import ValidationError

from orchestrator.errors import NotFoundError
from orchestrator.keys import SECRET, KeyRecord, KeyRequest, Scope
from orchestrator.store.admin.audit import AuditLine, AuditLog
from orchestrator.store.admin.keyring import SESSION_SECONDS, Keyring
from orchestrator.store.database import Database
from orchestrator.store.tables import audit, keys, sessions

DAY_SECONDS = 86_400


@pytest.fixture
def ring(database: Database) -> Keyring:
    return Keyring(database)


def test_a_key_opens_what_it_was_made_for_and_only_its_hash_is_kept(ring: Keyring, database: Database) -> None:
    assert not ring.has_keys()
    new_key = ring.create(KeyRequest(label="Ada", scope=Scope.SUBMITTER))
    match = SECRET.fullmatch(new_key.secret)
    assert match is not None and match["id"] == new_key.key.id
    opened = ring.open_with(new_key.secret)
    assert opened is not None and (opened.label, opened.scope) == ("Ada", "submitter")
    assert ring.has_keys()
    with database.reading() as connection:
        stored = " ".join(str(value) for row in connection.execute(sa.select(keys)) for value in row)
    drawn = new_key.secret.removeprefix(f"adapm_{new_key.key.id}_")  # may have "_" itself
    assert len(drawn) > 40 and drawn not in stored


@pytest.mark.parametrize("change", [lambda s: s[:-1] + ("A" if s[-1] != "A" else "B"), lambda s: s + "x", str.upper])
def test_a_key_that_is_not_quite_right_opens_nothing(ring: Keyring, change) -> None:
    assert ring.open_with(change(ring.create(KeyRequest(label="x")).secret)) is None


@pytest.mark.parametrize("secret", ["", "adapm_", "\x00", "é" * 60, "adapm_0123456789_" + "x" * 43, "x" * 100_000])
def test_what_is_no_key_opens_nothing(ring: Keyring, secret: str) -> None:
    ring.create(KeyRequest(label="x"))
    assert ring.open_with(secret) is None
    assert ring.open_session(secret) is None


def test_the_secret_of_one_key_does_not_open_another(ring: Keyring) -> None:
    first, other = (ring.create(KeyRequest(label="x")).secret for _ in range(2))
    assert ring.open_with(first[:16] + other[16:]) is None


def test_a_key_expires_by_the_clock_of_the_database(ring: Keyring, database: Database) -> None:
    new_key = ring.create(KeyRequest(label="x", expires_in_days=2))
    database.clock_offset_seconds += 2 * DAY_SECONDS - 60
    assert ring.open_with(new_key.secret) is not None
    database.clock_offset_seconds += 61
    assert ring.open_with(new_key.secret) is None
    assert ring.has_keys(), "a service whose keys have all expired is closed, not open"


def test_a_revoked_key_opens_nothing_and_neither_do_its_sessions(ring: Keyring) -> None:
    new_key = ring.create(KeyRequest(label="x"))
    session = ring.log_in(new_key.key.id)
    first = ring.revoke(new_key.key.id)
    assert first.revoked_at is not None
    assert ring.revoke(new_key.key.id) == first, "revoking again changes nothing"
    assert ring.open_with(new_key.secret) is None
    assert ring.open_session(session) is None
    assert ring.has_keys()
    with pytest.raises(NotFoundError, match="no key 'nothing'"):
        ring.revoke("nothing")


def test_a_session_ends_after_a_working_day_or_at_the_way_out(ring: Keyring, database: Database) -> None:
    new_key = ring.create(KeyRequest(label="x"))
    first, second = ring.log_in(new_key.key.id), ring.log_in(new_key.key.id)
    opened = ring.open_session(first)
    assert opened is not None and opened.id == new_key.key.id
    ring.log_out(second)
    assert ring.open_session(second) is None
    database.clock_offset_seconds += SESSION_SECONDS + 1
    assert ring.open_session(first) is None
    ring.log_in(new_key.key.id)
    with database.reading() as connection:
        assert connection.execute(sa.select(sa.func.count()).select_from(sessions)).scalar_one() == 1, "swept"


def last_used(ring: Keyring) -> float | None:
    return ring.list_keys()[0].last_used_at


def test_the_last_use_is_known_to_the_minute(ring: Keyring, database: Database) -> None:
    new_key = ring.create(KeyRequest(label="x"))
    assert new_key.key.last_used_at is None
    ring.open_with(new_key.secret)
    first = last_used(ring)
    ring.open_with(new_key.secret)
    assert first is not None and last_used(ring) == first
    database.clock_offset_seconds += 61
    ring.open_with(new_key.secret)
    assert (last_used(ring) or 0) > first + 60


def test_all_keys_are_listed_the_newest_first(ring: Keyring, database: Database) -> None:
    for label in ("one", "two"):
        ring.create(KeyRequest(label=label))
        database.clock_offset_seconds += 1
    assert [key.label for key in ring.list_keys()] == ["two", "one"]
    assert not set(KeyRecord.model_fields) & {"secret", "secret_hash"}


@pytest.mark.parametrize(
    "fields",
    [
        {"label": ""},
        {"label": " x"},
        {"label": "a\nb"},
        {"label": "\x1b[2J"},
        {"label": "x" * 81},
        {"label": "x", "scope": "root"},
        {"label": "x", "expires_in_days": 0},
        {"label": "x", "expires_in_days": float("nan")},
        {"label": "x", "runs_at_once": -1},
        {"label": "x", "runs_at_once": 1.5},
        {"label": "x", "device_hours_a_day": float("inf")},
        {"label": "x", "secret": "mine"},
    ],
    ids=str,
)
def test_a_request_for_a_key_that_makes_no_sense_is_refused(fields) -> None:
    with pytest.raises(ValidationError):
        KeyRequest.model_validate(fields)


def line(target: str, key_id: str | None = None) -> AuditLine:
    return AuditLine(key_id=key_id, address="10.0.0.1", action="POST /v1/x", target=target, outcome=200)


def test_the_audit_log_forgets_what_is_old(database: Database) -> None:
    AuditLog(database).add(line("/old"))
    database.clock_offset_seconds += 8 * DAY_SECONDS
    log = AuditLog(database, keep_days=7)
    log.add(line("/new"))
    assert [entry.target for entry in log.page(limit=9)] == ["/new"]


def test_the_audit_log_keeps_no_control_characters_and_no_novels(database: Database) -> None:
    log = AuditLog(database)
    log.add(line("/\x00\x1b[2J" + "x" * 9_000))
    (entry,) = log.page(limit=9)
    assert entry.target.isprintable() and len(entry.target) == 500
    with database.reading() as connection:
        assert connection.execute(sa.select(sa.func.count()).select_from(audit)).scalar_one() == 1
