"""`Leadership` and `LeaderLoop`: which of several processes has a duty, and the loop that does it.

    standby ──the lease is free or has run out──► leads (a new term) ──renews every few seconds──► resigns, or dies

A lease in the database, by the database's clock, keeps two dispatchers from doing the same work and from ending each
other's attempts, and two exporters from making the same run in MLflow twice. That no run of ours is doubled does not
depend on it: a claim locks the run's row, and a result needs the newest attempt's token.
"""

import threading
import time
from collections.abc import Callable

import sqlalchemy as sa
import structlog

from orchestrator.activity import DISPATCHER
from orchestrator.errors import ClusterError, OrchestratorError, StoreError
from orchestrator.store.database import Database, insert
from orchestrator.store.tables import leaders

log = structlog.get_logger(__name__)

LEADER_TTL_SECONDS = 10.0
"""A standby takes over within this long of the leader's death; three renewals may be late before that."""
RENEW_SECONDS = 2.0
"""The interval at which a leader renews its lease, and a standby checks whether it is free."""
STANDBY_SECONDS = 0.25
POLL_SECONDS = 0.5
"""The pause of a duty that found nothing to deliver."""
DELIVERY_RENEW_SECONDS = 5.0
"""As `RENEW_SECONDS`, of the duties that deliver: their leases are a minute and longer."""
AWAY_SECONDS = 1.0
"""The pause after a round that met a database that is away, or a disk without room."""
FAULT_SECONDS = 5.0
"""The pause after a round that went wrong otherwise: enough to keep the log readable."""


class LostLeadershipError(OrchestratorError):
    """Another process leads by now."""


class Leadership:
    """A candidate for a role. `holder` names it; who comes back under the same name goes on at once, so names must
    differ. For one thread."""

    def __init__(
        self,
        database: Database,
        holder: str,
        ttl_seconds: float = LEADER_TTL_SECONDS,
        role: str = DISPATCHER,
        renew_seconds: float = RENEW_SECONDS,
    ) -> None:
        self._database = database
        self._holder = holder
        self._ttl_seconds, self._renew_seconds = ttl_seconds, renew_seconds
        self._role = role
        self._term: int | None = None
        self._renewed_at = float("-inf")

    def keep(self) -> int | None:
        """Hold the role like `hold`, which is asked once in `renew_seconds`; in between its last answer holds."""
        now = time.monotonic()
        if now - self._renewed_at >= self._renew_seconds:
            self._term = self.hold()
            self._renewed_at = now
        return self._term

    def require(self) -> None:
        """Raise `LostLeadershipError` unless this process leads without a break since the last `keep`."""
        old_term = self._term
        if old_term is None or self.keep() != old_term:
            raise LostLeadershipError

    def hold(self) -> int | None:
        """Take or renew the lease and return our term, or None while another process leads.

        The term rises with every change of the holder: who reads another one than before has missed a leader.
        """
        expires_at = self._database.now() + self._ttl_seconds
        is_over = self._database.has_come(leaders.c.expires_at, self._ttl_seconds)
        is_ours = leaders.c.holder == self._holder
        # Not forced to disk: a lease that a power cut takes back was held by nobody who survived it.
        with self._database.writing(durable=False) as connection:
            first = insert(connection, leaders).values(
                role=self._role, holder=self._holder, term=1, expires_at=expires_at
            )
            upsert = first.on_conflict_do_update(
                index_elements=["role"],
                set_={
                    "holder": self._holder,
                    "term": leaders.c.term + sa.case((is_ours, 0), else_=1),
                    "expires_at": expires_at,
                },
                where=is_ours | is_over,
            )
            term = connection.execute(upsert.returning(leaders.c.term)).scalar_one_or_none()
        return None if term is None else int(term)

    def resign(self) -> None:
        """Let the next one lead at once; where the database is away, it has to wait for the lease to run out."""
        query = sa.update(leaders).where(leaders.c.role == self._role, leaders.c.holder == self._holder)
        try:
            with self._database.writing(durable=False) as connection:
                connection.execute(query.values(expires_at=0.0))
        except OrchestratorError as error:
            log.warning(
                "the next leader has to wait for this one's lease to run out", role=self._role, error=str(error)
            )


class Duty:
    """Work that one process on a database does at a time; without a leadership each process does it by itself."""

    name: str
    leadership: Leadership | None = None
    is_stopping: Callable[[], bool] = staticmethod(lambda: False)
    """Whether its loop is about to end; long work looks at it."""

    def take_over(self, term: int) -> None:
        """Begin to lead."""

    def work(self) -> float:
        """Do what there is to do; returns the seconds until the next look."""
        raise NotImplementedError

    def step_back(self) -> None:
        """Leave the duty to another process, which leads or has led meanwhile."""

    def close(self) -> None:
        """Leave off for good."""


class LeaderLoop:
    """Does a duty while this process leads: on a thread of its own (`start`), or on the caller's (`run`)."""

    def __init__(self, duty: Duty, stop_seconds: float | None = None) -> None:
        """`stop_seconds`: how long `close` waits for the thread; what it leaves then is done after the next start."""
        self._duty, self._stop_seconds = duty, stop_seconds
        self._term: int | None = None
        self._stop = threading.Event()
        duty.is_stopping = self._stop.is_set
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin, on a daemon thread."""
        self._thread = threading.Thread(target=self._run_and_close, name=self._duty.name, daemon=True)
        self._thread.start()

    def run(self, stop: threading.Event) -> None:
        """Do the duty until `stop` is set. A round that goes wrong is logged and followed by another one: one fault
        must not end the service of all others. Raises `ClusterError` if nothing will ever start again here."""
        pause = 0.0
        while not stop.wait(pause):
            try:
                pause = self.tick()
            except ClusterError:
                raise
            except LostLeadershipError:
                pause = 0.0
            except StoreError as error:
                log.warning("the database is away or has no room, trying again", duty=self._duty.name, error=str(error))
                pause = AWAY_SECONDS
            except Exception:
                pause = FAULT_SECONDS
                log.exception("a round went wrong, trying again", duty=self._duty.name, after_seconds=pause)

    def tick(self) -> float:
        """Do one round: take over, or step back, if that has changed, and do the work; returns the seconds to pause."""
        leadership = self._duty.leadership
        term = leadership.keep() if leadership else 1
        if term != self._term:
            old_term, self._term = self._term, None
            if old_term is not None:
                log.warning("another process leads", duty=self._duty.name, term=old_term)
                self._duty.step_back()
            if term is not None:
                self._duty.take_over(term)
            self._term = term
        return STANDBY_SECONDS if term is None else self._duty.work()

    def close(self) -> None:
        """Leave off, and let another process lead."""
        self._stop.set()
        if self._thread is None:
            self._duty.close()
        else:
            self._thread.join(self._stop_seconds)
        if self._duty.leadership:
            self._duty.leadership.resign()

    def _run_and_close(self) -> None:
        try:
            self.run(self._stop)
        finally:
            self._duty.close()
