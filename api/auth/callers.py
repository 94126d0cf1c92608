"""The caller of a request, by the key of its `Authorization` header or a login's cookie, looked up once in a while.

A key that was looked up is believed for `BELIEVED_SECONDS`: that long, and no longer, a revoked one may still open
something in another process of the service. The process that revokes it forgets it at once.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256

from fastapi.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.requests import cookie_parser

from orchestrator.keys import KeyRecord, Scope
from orchestrator.store.admin.keyring import Keyring

COOKIE = "adapm_bench_session"
BELIEVED_SECONDS = 2.0
RIGHT_SECONDS = 600.0
"""A secret that opened something is not held up by wrong ones from its address for so long."""
MOST_BELIEVED = 4096
"""Secrets, right and wrong ones, whose answer is kept at once; and so many attempts' tokens."""


@dataclass(frozen=True, kw_only=True)
class Caller:
    """The caller of a request."""

    address: str
    key: KeyRecord | None = None
    """Null where none was asked for: a service without keys, or an open route."""

    def key_id(self) -> str | None:
        """Return the id of the caller's key, under which what they do is kept."""
        return self.key.id if self.key is not None else None

    def scope(self) -> Scope:
        """Return the scope of the caller. Without keys the service answers this machine alone, which may do
        everything."""
        return self.key.scope if self.key is not None else Scope.ADMIN


@dataclass(frozen=True, kw_only=True)
class PresentedSecret:
    """The secret that a request shows."""

    secret: str = field(repr=False)
    by_cookie: bool


def presented_secret(headers: Headers) -> PresentedSecret | None:
    """Return the secret of a request; None if it shows none. A header is meant, a cookie is only sent along."""
    scheme, _, secret = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and secret.strip():
        return PresentedSecret(secret=secret.strip(), by_cookie=False)
    token = cookie_parser(headers.get("cookie", "")).get(COOKIE)
    return PresentedSecret(secret=token, by_cookie=True) if token else None


class Callers:
    """The keyring, asked once in a while. For one event loop."""

    def __init__(self, keyring: Keyring, clock: Callable[[], float] = time.monotonic) -> None:
        self._keyring = keyring
        self._clock = clock
        self._believed: dict[PresentedSecret, tuple[float, KeyRecord | None]] = {}
        self._right: dict[str, float] = {}
        """When which secret opened something, by its hash, the latest last."""
        self._generation = 0
        """Counts what was forgotten: a look-up that began before is not believed after."""
        self._closed = False
        self._asked_at = float("-inf")

    async def has_keys(self) -> bool:
        """Return whether this service has keys. Once it has it always has: keys are never deleted."""
        if not self._closed and self._clock() - self._asked_at >= BELIEVED_SECONDS:
            self._closed = await run_in_threadpool(self._keyring.has_keys)
            self._asked_at = self._clock()
        return self._closed

    def knows(self, shown: PresentedSecret) -> bool:
        """Return whether its answer is at hand, so that asking costs nothing."""
        return self._clock() - self._believed.get(shown, (float("-inf"), None))[0] < BELIEVED_SECONDS

    async def key(self, shown: PresentedSecret) -> KeyRecord | None:
        """Return the key of a secret, if it opens anything."""
        asked_at, generation = self._clock(), self._generation
        if self.knows(shown):
            return self._believed[shown][1]
        look = self._keyring.open_session if shown.by_cookie else self._keyring.open_with
        record = await run_in_threadpool(look, shown.secret)
        self.note(shown.secret, right=record is not None)
        if generation != self._generation:
            return record
        if len(self._believed) >= MOST_BELIEVED:
            self._believed.clear()
        self._believed[shown] = asked_at, record
        return record

    def was_right(self, secret: str) -> bool:
        """Return whether this key was accepted lately, so other callers' wrong keys do not delay it. It is still looked
        up."""
        return self._clock() - self._right.get(_digest(secret), float("-inf")) < RIGHT_SECONDS

    def note(self, secret: str, *, right: bool) -> None:
        """Remember whether a secret that was looked up opened something."""
        self._right.pop(_digest(secret), None)
        if right:
            self._right[_digest(secret)] = self._clock()
            while len(self._right) > MOST_BELIEVED:
                del self._right[next(iter(self._right))]

    def forget(self) -> None:
        """Discard the cache: a key was made or revoked, or a session ended."""
        self._generation += 1
        self._believed.clear()
        self._asked_at = float("-inf")


class Leases:
    """The tokens that open running attempts. One that does once always does; whether its lease lives, the verbs say.

    They are looked up one after the other, so that guesses cost one thread at most. For one event loop.
    """

    def __init__(self, look_up: Callable[[str, int, str], bool]) -> None:
        self._look_up, self._turn = look_up, asyncio.Lock()
        self._known: dict[tuple[str, int, str], None] = {}
        """Run, attempt and the token's hash, the latest last."""

    async def know(self, run_id: str, attempt: int, token: str) -> bool:
        """Return whether the token opens that attempt."""
        remembered = run_id, attempt, _digest(token)
        if remembered in self._known:
            return True
        async with self._turn:
            opens = await run_in_threadpool(self._look_up, run_id, attempt, token)
        if opens:
            self._known[remembered] = None
            while len(self._known) > MOST_BELIEVED:
                del self._known[next(iter(self._known))]
        return opens


def _digest(secret: str) -> str:
    return sha256(secret.encode(errors="replace")).hexdigest()
