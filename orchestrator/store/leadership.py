"""`Leadership`: which of several processes has a role. A lease in the database, by the database's clock.

    standby ──the lease is free or has run out──► leads (a new term) ──renews every few seconds──► resigns, or dies

It keeps two dispatchers from doing the same work and from ending each other's attempts, and two exporters from making
the same run in MLflow twice. What keeps a run of ours from being doubled does not depend on it: a claim locks the run's
row, and a result needs the newest attempt's token.
"""

import time

import sqlalchemy as sa
import structlog
from sqlalchemy.engine import Connection

from orchestrator.activity import DISPATCHER
from orchestrator.errors import OrchestratorError
from orchestrator.store.database import Database, insert
from orchestrator.store.tables import leaders

log = structlog.get_logger(__name__)

LEADER_TTL_SECONDS = 10.0
"""A standby takes over within this long of the leader's death; three renewals may be late before that."""


class Leadership:
    """One candidate for a role. `holder` names it; who comes back under the same name goes on at once, so names must
    differ."""

    def __init__(
        self, database: Database, holder: str, ttl_seconds: float = LEADER_TTL_SECONDS, role: str = DISPATCHER
    ) -> None:
        self._database = database
        self._holder = holder
        self._ttl_seconds = ttl_seconds
        self._role = role
        self._term: int | None = None
        self._renewed_at = float("-inf")

    def keep(self, every_seconds: float) -> int | None:
        """As `hold`, which is asked once in so many seconds; in between its last answer holds. For one thread."""
        now = time.monotonic()
        if now - self._renewed_at >= every_seconds:
            self._term = self.hold()
            self._renewed_at = now
        return self._term

    def hold(self) -> int | None:
        """Take or renew the lease: the term that we lead in, or None while another one leads.

        The term rises with every change of the holder: who reads another one than before has missed a leader.
        """
        # Not forced to disk: a lease that a power cut takes back was held by nobody who survived it.
        with self._database.writing(durable=False) as connection:
            return self._renew(connection) or self._take_over(connection) or self._begin(connection)

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

    def _renew(self, connection: Connection) -> int | None:
        mine = sa.update(leaders).where(leaders.c.role == self._role, leaders.c.holder == self._holder)
        return _term(connection, mine.values(expires_at=self._new_expiry()))

    def _take_over(self, connection: Connection) -> int | None:
        over = self._database.has_come(leaders.c.expires_at, self._ttl_seconds)
        free = sa.update(leaders).where(leaders.c.role == self._role, over)
        taken = free.values(holder=self._holder, term=leaders.c.term + 1, expires_at=self._new_expiry())
        return _term(connection, taken)

    def _begin(self, connection: Connection) -> int | None:
        first = insert(connection, leaders)
        mine = first.values(role=self._role, holder=self._holder, term=1, expires_at=self._new_expiry())
        return _term(connection, mine.on_conflict_do_nothing(index_elements=["role"]))

    def _new_expiry(self) -> sa.ColumnElement[float]:
        return self._database.now() + self._ttl_seconds


def _term(connection: Connection, change: sa.Update | sa.Insert) -> int | None:
    """Make the change; the term of the row that it made or changed, None if there is none (terms count from 1)."""
    term = connection.execute(change.returning(leaders.c.term)).scalar_one_or_none()
    return None if term is None else int(term)
