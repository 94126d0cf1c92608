"""Campaigns: levels spent once, tries judged as their runs end, held-out runs seen by nobody, on either database."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from orchestrator.annotations import AnnotationChange
from orchestrator.campaigns.improvement import FIRST_PAIRS, PairsState
from orchestrator.campaigns.ledger import (
    NO_HASH,
    DamagedCampaign,
    EntryKind,
    LedgerEntry,
    TryRecord,
    TryState,
    entry_hash,
)
from orchestrator.errors import ConflictError, DamagedError, IdempotencyError, NotFoundError
from orchestrator.jobs import Lease, RunAction, RunId, RunStatus
from orchestrator.records import RunFilter
from orchestrator.services.run_table import read_query
from orchestrator.store import reads
from orchestrator.store.admin import maintenance
from orchestrator.store.outgoing.exports import ExportOutbox
from orchestrator.store.queue import campaigns as stored
from orchestrator.store.tables import (
    campaign_entries,
    campaign_experiments,
    campaigns,
    experiments,
    held_out_seen,
    results,
    runs,
)
from tests.contract.conftest import Store, open_store, sqlite_file
from tests.contract.queue.test_races import together
from tests.factories.campaigns import BAD, EFFECT, GOOD, campaign_spec, loss_of
from tests.factories.stores import result
from worker.records.result import Verdict
from worker.schema import canonical_json


def play(store: Store, loss: Callable[[Lease], float] = loss_of, *, most: int = 1_000) -> int:
    """Train what waits, one run after the other, until nothing does; how many runs that were."""
    for count in range(most):
        leases = store.claim(cpus=1, limit=1)
        if not leases:
            return count
        (lease,) = leases
        store.attempts.hello(lease.run_id, lease.attempt, lease.token)
        store.attempts.finish(lease.run_id, lease.attempt, lease.token, result(final_val_loss=loss(lease)))
    return most


def tried(store: Store, campaign_id: str, request: Any = GOOD) -> TryRecord:
    """Registered and submitted."""
    place = store.campaigns.register(campaign_id, request).place
    return store.campaigns.submit(campaign_id, place)


def held_out_ids(store: Store) -> tuple[list[str], list[str]]:
    """The experiments and runs on held-out workloads, which no read tells."""
    mine = sa.select(campaign_experiments.c.experiment_number).where(campaign_experiments.c.workload > 0)
    with store.database.reading() as connection:
        of_experiments = sa.select(experiments.c.id).where(experiments.c.number.in_(mine))
        of_runs = sa.select(runs.c.id).where(runs.c.experiment_number.in_(mine))
        return [*connection.execute(of_experiments).scalars()], [*connection.execute(of_runs).scalars()]


def begin_what_is_held_out(store: Store) -> None:
    """Train until the first held-out workload has been queued."""
    while not held_out_ids(store)[0]:
        play(store, most=1)


def test_a_try_is_improved_once_it_is_shown_on_every_workload(store: Store) -> None:
    campaign = store.campaigns.open(campaign_spec(held_out=2))
    registered = store.campaigns.register(campaign.id, GOOD)
    assert (registered.state, registered.runs, registered.experiment_id) == (TryState.REGISTERED, 0, None)
    submitted = store.campaigns.submit(campaign.id, 1)
    assert (submitted.state, submitted.runs) == (TryState.RUNNING, 2 * FIRST_PAIRS)
    assert store.campaigns.submit(campaign.id, 1) == submitted
    play(store)
    found = store.campaigns.get_try(campaign.id, 1)
    assert found.state is TryState.IMPROVED
    assert found.improvement is not None
    assert found.improvement.mean == pytest.approx(-EFFECT)
    assert found.improvement.high < 0
    assert [each.state for each in found.held_out] == [PairsState.SHOWN] * 2
    assert found.verdict.startswith("Improved: the mean difference in validation loss over ")
    assert "on 2 held-out workloads" in found.verdict
    ledger = store.campaigns.ledger(campaign.id)
    assert [each.kind for each in ledger.entries] == [
        EntryKind.OPENED,
        EntryKind.REGISTERED,
        EntryKind.SUBMITTED,
        *[EntryKind.JUDGED, EntryKind.HELD_OUT] * 2,
        EntryKind.JUDGED,
    ]
    assert ledger.faults == ()
    after = store.campaigns.get(campaign.id)
    assert (after.tries, after.improved, after.not_shown) == (1, 1, 0)
    assert after.runs > found.runs == 2 * found.improvement.pairs
    assert after.error_spent == pytest.approx(found.level)
    assert after.head == ledger.hashes[-1]


def test_what_is_not_shown_ends_early_and_never_reaches_what_is_held_out(store: Store) -> None:
    campaign = store.campaigns.open(campaign_spec())
    tried(store, campaign.id, BAD)
    assert play(store) == 2 * FIRST_PAIRS
    found = store.campaigns.get_try(campaign.id, 1)
    assert (found.state, found.held_out[0].begun) == (TryState.NOT_SHOWN, False)
    assert found.verdict.endswith("Further pairs would hardly have shown it.")
    assert store.campaigns.ledger(campaign.id).faults == ()


def test_shown_on_the_workload_alone_is_not_improved(store: Store) -> None:
    campaign = store.campaigns.open(campaign_spec())
    tried(store, campaign.id)
    play(store, partial(loss_of, held_out_helps=lambda _: False))
    found = store.campaigns.get_try(campaign.id, 1)
    assert found.state is TryState.NOT_SHOWN
    assert found.improvement is not None and found.improvement.state is PairsState.SHOWN
    assert "no improvement was shown on held-out workload 1" in found.verdict
    (judged,) = [each for each in store.campaigns.ledger(campaign.id).entries if each.workload == 1 and each.state]
    assert judged.improvement is None  # its losses are nobody's


def test_each_try_has_seeds_of_its_own_and_a_level_that_is_spent_when_it_is_registered(store: Store) -> None:
    campaign = store.campaigns.open(campaign_spec(most_tries=3))
    found = [store.campaigns.register(campaign.id, GOOD) for _ in range(3)]
    assert [each.place for each in found] == [1, 2, 3]
    assert [each.level for each in found] == [campaign_spec().level(place) for place in (1, 2, 3)]
    with pytest.raises(ConflictError, match="may have 3 tries"):
        store.campaigns.register(campaign.id, GOOD)
    for each in found:
        store.campaigns.submit(campaign.id, each.place)
    seeds = [run.seed for run in store.runs.page(limit=100) if run.candidate == "candidate"]
    assert len(set(seeds)) == len(seeds) == 3 * FIRST_PAIRS
    assert store.campaigns.get(campaign.id).next_level is None


def test_an_idempotency_key_registers_once(store: Store) -> None:
    campaign = store.campaigns.open(campaign_spec())
    assert [store.campaigns.register(campaign.id, GOOD, key="a", by="k").place for _ in range(2)] == [1, 1]
    assert store.campaigns.register(campaign.id, GOOD, key="a", by="another").place == 2
    with pytest.raises(IdempotencyError, match="belongs to try 1"):
        store.campaigns.register(campaign.id, BAD, key="a", by="k")


def test_a_try_asks_for_no_entry_of_another_one(store: Store) -> None:
    """Else the end of each of its runs would take as long as the campaign is old."""
    campaign = store.campaigns.open(campaign_spec(held_out=0))
    for _ in range(2):
        store.campaigns.register(campaign.id, GOOD)
    with store.database.writing() as connection:
        of_the_first = campaign_entries.c.number == 2
        connection.execute(sa.update(campaign_entries).where(of_the_first).values(body="cannot be read"))
    assert store.campaigns.register(campaign.id, GOOD).place == 3
    store.campaigns.submit(campaign.id, 2)
    play(store)
    assert store.campaigns.get_try(campaign.id, 2).state is TryState.IMPROVED


def test_callers_at_once_spend_no_level_twice(store: Store) -> None:
    campaign = store.campaigns.open(campaign_spec())
    calls = [lambda: store.campaigns.register(campaign.id, GOOD).place for _ in range(4)]
    assert sorted(map(int, map(str, together(*calls)))) == [1, 2, 3, 4]
    together(*[partial(store.campaigns.submit, campaign.id, 2) for _ in range(4)])
    entries = store.campaigns.ledger(campaign.id)
    assert entries.faults == ()
    assert sum(each.kind is EntryKind.SUBMITTED for each in entries.entries) == 1
    assert len(store.experiments.page()) == 1


def test_a_pair_is_not_chosen_by_cancelling_one(store: Store) -> None:
    """Those behind a run that was cancelled wait for its retry."""
    campaign = store.campaigns.open(campaign_spec(held_out=0))
    submitted = tried(store, campaign.id)
    assert submitted.experiment_id is not None
    first = store.runs.page(experiment_id=submitted.experiment_id)[0]
    store.runs.apply(first.id, RunAction.CANCEL)
    play(store)
    found = store.campaigns.get_try(campaign.id, 1)
    assert (found.state, found.improvement and found.improvement.pairs) == (TryState.HELD_UP, 0)
    assert found.verdict.startswith("Undecided: no pair has ended yet. Its level of 0.025 is spent. A run failed, was")
    store.campaigns.retry(campaign.id, 1)
    play(store)
    assert store.campaigns.get_try(campaign.id, 1).state is TryState.IMPROVED
    assert store.campaigns.ledger(campaign.id).faults == ()


def test_a_held_out_run_that_was_lost_is_retried_through_its_try(store: Store) -> None:
    campaign = store.campaigns.open(campaign_spec())
    tried(store, campaign.id)
    begin_what_is_held_out(store)
    (lost,) = [each for each in held_out_ids(store)[1] if _status(store, each) is RunStatus.QUEUED][:1]
    with held_out_seen():
        store.runs.apply(lost, RunAction.CANCEL)
    play(store)
    assert store.campaigns.get_try(campaign.id, 1).state is TryState.HELD_UP
    (seen,) = store.campaigns.held_out_workloads(campaign.id).tries
    assert seen.runs["cancelled"] == 1 and seen.reasons == ("cancelled",)
    store.campaigns.retry(campaign.id, 1)
    play(store)
    assert store.campaigns.get_try(campaign.id, 1).state is TryState.IMPROVED


def _status(store: Store, run_id: str) -> RunStatus:
    with store.database.reading() as connection:
        return RunStatus(connection.execute(sa.select(runs.c.status).where(runs.c.id == run_id)).scalar_one())


def test_nobody_sees_or_touches_what_is_held_out(store: Store) -> None:
    campaign = store.campaigns.open(campaign_spec())
    tried(store, campaign.id)
    begin_what_is_held_out(store)
    play(store, most=2)
    leases = store.claim(cpus=1, limit=1)
    (hidden,), hidden_runs = held_out_ids(store)
    assert leases[0].run_id in hidden_runs
    seen: list[object] = [
        store.experiments.page(limit=100),
        store.experiments.page(limit=100, deleted=True),
        store.runs.page(limit=100),
        store.run_table.page(read_query(columns=("id", "experiment", "val_loss"))),
        store.run_table.groups(read_query(group="experiment")),
        store.monitor.activity(waiting=100),
        ExportOutbox(store.database).due(1000),
        store.campaigns.get(campaign.id),
        store.campaigns.tries(campaign.id),
        store.campaigns.ledger(campaign.id),
        *(_refusal(look) for look in looks(store, hidden, hidden_runs)),
    ]
    told = "\n".join(map(repr, seen))
    for refused in looks(store, hidden, hidden_runs):
        assert isinstance(_refusal(refused), NotFoundError)
    asked = [hidden, *hidden_runs]
    assert "steps=111" not in told
    assert not [id for id in asked if f"'{id}'" in told.replace(f"there is no experiment '{hidden}'", "")
                .replace(f"there is no run '{id}'", "").replace(f"asked='{id}'", "")]  # fmt: skip
    with store.database.reading() as connection:
        assert reads.runs_of(connection, hidden_runs) == ()
        assert not [run for run in reads.run_page(connection, where=RunFilter(), sort=None, limit=None, after=None)
                    if run.id in hidden_runs]  # fmt: skip
    play(store)
    assert store.campaigns.get_try(campaign.id, 1).state is TryState.RUNNING  # one is leased still


def looks(store: Store, hidden: str, hidden_runs: list[str]) -> Iterator[Callable[[], object]]:
    """Every way to ask for them by an id that somebody has guessed."""
    yield lambda: store.experiments.get(hidden)
    yield lambda: store.experiments.get_any(hidden, deleted_too=True)
    yield lambda: store.experiments.version(hidden)
    yield lambda: store.experiments.get(hidden[:6])
    yield lambda: store.experiments.annotate(hidden, AnnotationChange(note="mine"))
    yield lambda: store.experiments.delete(hidden)
    yield lambda: store.experiments.restore(hidden)
    yield lambda: store.experiments.clone(hidden)
    yield lambda: store.analysis.compare(hidden)
    yield lambda: store.runs.page(experiment_id=hidden)
    yield lambda: store.runs.page(after=hidden_runs[0])
    for action in RunAction:
        yield partial(store.experiments.apply, hidden, action)
        yield partial(store.runs.apply, hidden_runs[0], action)
    for ask in ("get", "attempts", "events", "checkpoints", "points", "series", "observations", "queue_position"):
        yield partial(getattr(store.runs, ask), hidden_runs[0])
    yield lambda: store.runs.log_tail(hidden_runs[0], 1, 100)


def _refusal(look: Callable[[], object]) -> object:
    try:
        return look()
    except NotFoundError as error:
        return error


def test_the_ledger_says_what_does_not_follow_from_it(store: Store) -> None:
    campaign = store.campaigns.open(campaign_spec(held_out=0))
    tried(store, campaign.id)
    play(store)
    last = RunId(store.runs.page(limit=1)[0].id)
    with store.database.writing() as connection:
        known = sa.select(results.c.result).where(results.c.run_id == last)
        changed = connection.execute(known).scalar_one().replace('"converged"', '"diverged"')
        connection.execute(sa.update(results).where(results.c.run_id == last).values(result=changed))
    assert any("does not follow from its stored results" in each for each in store.campaigns.ledger(campaign.id).faults)
    with store.database.writing() as connection:
        body = sa.func.replace(campaign_entries.c.body, "0.02", "0.01")
        connection.execute(sa.update(campaign_entries).where(campaign_entries.c.number == 2).values(body=body))
    faults = store.campaigns.ledger(campaign.id).faults
    assert any("entry 2 does not follow the one before it" in each for each in faults)
    assert any("not judged at the level of its place" in each for each in faults)


def test_the_ledger_confirms_no_guess_of_what_is_held_out(store: Store) -> None:
    """Of the very specification, nobody can show from the ledger that it is the one."""
    spec = campaign_spec()
    campaign, same = (store.campaigns.open(spec) for _ in range(2))
    (opened,), (other,) = (store.campaigns.ledger(each.id).entries for each in (campaign, same))
    assert spec.content_hash() not in (*opened.spec_hashes, *other.spec_hashes)
    assert opened.spec_hashes != other.spec_hashes
    with store.database.reading() as connection:
        salts = [stored.read_campaign(connection, each.id).spec.salt for each in (campaign, same)]
    told = "".join(
        answer.model_dump_json()
        for each in (campaign, same)
        for answer in (store.campaigns.get(each.id), store.campaigns.ledger(each.id))
    )
    assert [len(salt) for salt in salts] == [64, 64]
    assert not any(salt in told for salt in salts)
    assert store.campaigns.ledger(campaign.id).faults == ()


def test_a_campaign_that_was_opened_without_a_salt_verifies(store: Store) -> None:
    spec, campaign = campaign_spec(), store.campaigns.open(campaign_spec())
    old = LedgerEntry(number=1, at=1.0, kind=EntryKind.OPENED, spec_hashes=(spec.content_hash(),)).body()
    with store.database.writing() as connection:
        content = canonical_json(spec.model_dump(mode="json")).decode()
        connection.execute(sa.update(campaigns).values(spec=content))
        connection.execute(sa.update(campaign_entries).values(body=old, hash=entry_hash(NO_HASH, old)))
    assert store.campaigns.ledger(campaign.id).faults == ()
    with store.database.writing() as connection:
        connection.execute(sa.update(campaigns).values(spec=content.replace('"gain":', '"gain":1')))
    assert store.campaigns.ledger(campaign.id).faults == (
        "the campaign's specification is not the one that it was opened with",
    )


@pytest.mark.parametrize("column", [campaign_entries.c.body, campaign_experiments.c.spec, campaigns.c.spec], ids=str)
def test_a_damaged_campaign_is_listed_and_stops_no_run(store: Store, column: sa.Column[str]) -> None:
    campaign, whole = store.campaigns.open(campaign_spec(name="bad")), store.campaigns.open(campaign_spec(name="good"))
    experiment = tried(store, campaign.id).experiment_id
    with store.database.writing() as connection:
        number = sa.select(campaigns.c.number).where(campaigns.c.id == campaign.id).scalar_subquery()
        mine = column.table.c.number if column.table is campaigns else column.table.c.campaign_number
        connection.execute(sa.update(column.table).where(mine == number).values({column.name: "{"}))
    assert play(store) >= 2 * FIRST_PAIRS
    assert {run.status for run in store.runs.page(experiment_id=experiment)} == {RunStatus.SUCCEEDED}
    listed = store.campaigns.page()
    assert listed[0] == store.campaigns.get(whole.id)
    if column is not campaign_experiments.c.spec:  # which the list does not read
        assert isinstance(listed[1], DamagedCampaign) and "cannot be read" in listed[1].damaged
        with pytest.raises(DamagedError):
            store.campaigns.get(campaign.id)
    with pytest.raises(DamagedError):
        store.campaigns.tries(campaign.id)
    assert any(fault.startswith(f"{column.table.name} ") for fault in maintenance.faults(store.database))


def test_an_experiment_of_a_try_stays(store: Store) -> None:
    campaign = store.campaigns.open(campaign_spec(held_out=0))
    experiment_id = tried(store, campaign.id).experiment_id
    play(store)
    assert experiment_id is not None
    with pytest.raises(ConflictError, match="is try 1 of a campaign"):
        store.experiments.delete(experiment_id)


def test_a_campaign_has_no_more_runs_than_it_may(store: Store) -> None:
    campaign = store.campaigns.open(campaign_spec(held_out=0, most_runs=5))
    tried(store, campaign.id)
    second = store.campaigns.register(campaign.id, GOOD)
    with pytest.raises(ConflictError, match="may have 5 runs, and has had 8"):
        store.campaigns.submit(campaign.id, second.place)


def test_a_candidate_that_diverges_is_not_improved(store: Store) -> None:
    campaign = store.campaigns.open(campaign_spec(held_out=0))
    tried(store, campaign.id)
    every_second = itertools.cycle((True, False))
    while leases := store.claim(cpus=1, limit=1):
        (lease,) = leases
        store.attempts.hello(lease.run_id, 1, lease.token)
        diverges = lease.spec.optimizer.lr == GOOD.lr and next(every_second)
        ended = (
            result(verdict=Verdict.DIVERGED, final_val_loss=None) if diverges else result(final_val_loss=loss_of(lease))
        )
        store.attempts.finish(lease.run_id, 1, lease.token, ended)
    found = store.campaigns.get_try(campaign.id, 1)
    assert found.improvement is not None
    assert found.state is TryState.NOT_SHOWN and found.improvement.cut_pairs


class Killed(BaseException):
    """What a kill -9 is to the process that it hits."""


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_kill_at_any_commit_loses_and_spends_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """Every commit that adds to the ledger, and one in seven of the others, is the last thing that a process does, or
    what it does no more; another one goes on."""
    with sqlite_file(tmp_path) as database:
        store = open_store(database)
        campaign = store.campaigns.open(campaign_spec())
        commits, killed, writing = 0, 0, database.writing
        lengths = {1}
        ledger_length = sa.select(sa.func.count()).select_from(campaign_entries)

        @contextmanager
        def dies(**options: bool) -> Iterator[sa.Connection]:
            nonlocal commits
            with writing(**options) as connection:
                yield connection
                commits += 1
                length = connection.execute(ledger_length).scalar_one()
                deadly = length not in lengths or commits % 7 == 0
                lengths.add(length)
                if deadly and when == "before":
                    raise Killed
            if deadly and when == "after":
                raise Killed

        ended = False
        while not ended:
            try:
                with monkeypatch.context() as patched:
                    patched.setattr(database, "writing", dies)
                    place = store.campaigns.register(campaign.id, GOOD, key="the idea").place
                    store.campaigns.submit(campaign.id, place)
                    play(store)
                    ended = store.campaigns.get_try(campaign.id, 1).state is TryState.IMPROVED
            except Killed:
                killed += 1
            store.pass_time(60)  # what was at work has died as well
            if store.campaigns.get(campaign.id).tries:
                store.campaigns.retry(campaign.id, 1)
        assert killed >= len(lengths) - 1 > 3
        assert store.campaigns.get_try(campaign.id, 1).state is TryState.IMPROVED
        ledger = store.campaigns.ledger(campaign.id)
        assert ledger.faults == ()
        assert store.campaigns.get(campaign.id).tries == 1


def test_a_campaign_says_what_does_not_go_together(store: Store) -> None:
    with pytest.raises(NotFoundError, match="no campaign 'nowhere'"):
        store.campaigns.get("nowhere")
    campaign = store.campaigns.open(campaign_spec())
    with pytest.raises(NotFoundError, match="has no try 7; register it first"):
        store.campaigns.submit(campaign.id, 7)
    with pytest.raises(NotFoundError, match="has no try 7"):
        store.campaigns.get_try(campaign.id, 7)
