"""Leadership of one dispatcher, on SQLite and PostgreSQL: by the database's clock, handed over, taken over, never
shared."""

from orchestrator.store.database import Database
from orchestrator.store.leadership import Leadership
from tests.contract.queue.test_races import together

TTL = 10.0


def candidate(database: Database, holder: str) -> Leadership:
    return Leadership(database, holder, TTL)


def test_the_first_one_leads_and_keeps_on_by_renewing(database: Database) -> None:
    first, second = candidate(database, "a"), candidate(database, "b")
    assert first.hold() == 1
    for _ in range(5):
        database.clock_offset_seconds += 0.9 * TTL
        assert (first.hold(), second.hold()) == (1, None)


def test_a_leader_that_resigns_is_followed_at_once(database: Database) -> None:
    first, second = candidate(database, "a"), candidate(database, "b")
    first.hold()
    second.resign()
    assert second.hold() is None, "only the leader can resign"
    first.resign()
    assert second.hold() == 2


def test_who_comes_back_under_its_name_goes_on_and_who_was_away_sees_another_term(database: Database) -> None:
    first, second = candidate(database, "a"), candidate(database, "b")
    assert first.hold() == 1
    assert candidate(database, "a").hold() == 1
    database.clock_offset_seconds += TTL + 0.1
    second.hold()
    second.resign()
    assert first.hold() == 3


def test_of_many_candidates_at_once_exactly_one_leads(database: Database) -> None:
    for _ in range(10):
        terms = together(*[candidate(database, f"c{number}").hold for number in range(6)])
        assert len([term for term in terms if term is not None]) == 1
        database.clock_offset_seconds += TTL + 0.1


def test_roles_are_held_apart(database: Database) -> None:
    first, second = Leadership(database, "a", TTL), Leadership(database, "b", TTL, role="another")
    assert (first.hold(), second.hold()) == (1, 1)
    first.resign()
    assert Leadership(database, "c", TTL, role="another").hold() is None
