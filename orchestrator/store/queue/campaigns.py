"""Campaigns in the database: opened, tries registered and submitted, judged in the transaction that ends a run.

Every step locks the campaign's row and adds to its ledger in the transaction that does it: of two callers at once the
second one sees what the first one has spent, and a process that is killed has done both or neither. Runs, experiments
and campaigns are locked in that order.

Seeds are drawn at random when a try is registered, for each workload others: whoever runs something before has no way
to run it on them.
"""

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import sqlalchemy as sa
from pydantic import BaseModel, ValidationError
from sqlalchemy.engine import Connection

from orchestrator.campaigns.improvement import PairsState, improvement_of
from orchestrator.campaigns.ledger import (
    NO_HASH,
    CampaignSpec,
    EntryKind,
    LedgerEntry,
    OpenedCampaign,
    TryPlace,
    TryRequest,
    entry_hash,
    verdict_after,
)
from orchestrator.errors import ConflictError, DamagedError, IdempotencyError, NotFoundError, OrchestratorError
from orchestrator.kinds.comparison import ComparisonSpec
from orchestrator.records import RunFilter, RunRecord
from orchestrator.store import integrity, reads
from orchestrator.store.database import Database
from orchestrator.store.ids import new_id, validate_id
from orchestrator.store.notifications import count_change
from orchestrator.store.queue.submission import Submittal, store_experiments
from orchestrator.store.tables import campaign_entries, campaign_experiments, campaigns, experiments, runs
from worker.schema import canonical_json, first_fault
from worker.words import pluralize

Stored = TypeVar("Stored", bound=BaseModel)

SEEDS = 2**31
"""Seeds are below it."""


@dataclass(frozen=True, kw_only=True)
class StoredCampaign:
    """One campaign as it was opened."""

    number: int
    id: str
    name: str
    spec: OpenedCampaign
    created_at: float
    key_id: str | None


@dataclass(frozen=True, kw_only=True)
class StoredEntry:
    """An entry of a ledger, as it was read and as it is stored."""

    entry: LedgerEntry
    body: str
    hash: str


@dataclass(frozen=True, kw_only=True)
class TryExperiment:
    """What a try may run on one workload."""

    place: int
    workload: int
    spec: ComparisonSpec
    spec_hash: str
    """Of the specification as it is stored."""
    number: int | None
    """Of the experiment, once it is submitted."""
    id: str | None


def open_campaign(database: Database, spec: CampaignSpec, *, by: str | None) -> str:
    """Store a campaign; its id."""
    with database.writing() as connection:
        now, id = database.read_clock(connection), new_id()
        opened = OpenedCampaign(**dict(spec), salt=secrets.token_hex())
        content = canonical_json(opened.model_dump(mode="json")).decode()
        row = {"id": id, "name": spec.name, "spec": content, "created_at": now, "key_id": by}
        number = connection.execute(sa.insert(campaigns).values(row).returning(campaigns.c.number)).scalar_one()
        hashes = (opened.content_hash(),)
        _add(connection, number, LedgerEntry(number=1, at=now, kind=EntryKind.OPENED, spec_hashes=hashes))
        count_change(connection)
    return id


def register_try(database: Database, campaign_id: str, tried: TryRequest, *, by: str | None, key: str | None) -> int:
    """Freeze what is tried and spend its level; its place. The same idempotency key of the same caller gives the same
    place again. Raises `NotFoundError`, `ConflictError`."""
    with database.writing() as connection:
        campaign = _lock(connection, campaign_id)
        known = None if key is None else hashlib.sha256(f"{campaign.id}\n{by}\n{key}".encode()).hexdigest()
        if known is not None and (place := _find_registered(connection, known, tried, key)) is not None:
            return place
        mine = campaign_experiments.c.campaign_number == campaign.number
        place = 1 + (connection.scalar(sa.select(sa.func.max(campaign_experiments.c.place)).where(mine)) or 0)
        if place > campaign.spec.most_tries:
            raise ConflictError(
                f"campaign {campaign.id} may have {campaign.spec.most_tries:,} tries, and all are registered"
            )
        specs = _freeze(campaign.spec, tried, place)
        rows = [
            {
                "campaign_number": campaign.number,
                "place": place,
                "workload": workload,
                "spec": canonical_json(spec.model_dump(mode="json")).decode(),
            }
            for workload, spec in enumerate(specs)
        ]
        connection.execute(sa.insert(campaign_experiments), rows)
        entry = LedgerEntry(
            number=0,
            at=database.read_clock(connection),
            kind=EntryKind.REGISTERED,
            place=place,
            tried=tried,
            level=campaign.spec.level(place),
            spec_hashes=tuple(spec.content_hash() for spec in specs),
        )
        _add(connection, campaign.number, entry, known)
        count_change(connection)
    return place


def submit_try(database: Database, campaign_id: str, place: int, *, by: str | None, most_waiting: int | None) -> None:
    """Queue a registered try on the workload that is shown, charged to the key `by`; one that is submitted stays as it
    is. Raises `NotFoundError`, `ConflictError`."""
    with database.writing() as connection:
        campaign = _lock(connection, campaign_id)
        found = try_experiments(connection, campaign, place)[0]
        if found.number is not None:
            return
        if (used := runs_used(connection, campaign.number)) >= campaign.spec.most_runs:
            raise ConflictError(
                f"campaign {campaign.id} may have {pluralize(campaign.spec.most_runs, 'run')}, and has had {used:,}"
            )
        now = database.read_clock(connection)
        experiment_id = _submit(connection, campaign.number, found, now, by, most_waiting)
        entry = LedgerEntry(number=0, at=now, kind=EntryKind.SUBMITTED, place=place, experiment_id=experiment_id)
        _add(connection, campaign.number, entry)
        count_change(connection)


def follow_try(connection: Connection, experiment_number: int, now: float) -> None:
    """Judge a try on a workload once its pairs decide, and let the next workload begin; nothing where it is none, or
    judged already. Part of the transaction that follows its runs, which sees what is held out."""
    query = sa.select(
        campaign_experiments.c.campaign_number, campaign_experiments.c.place, campaign_experiments.c.workload
    )
    row = connection.execute(query.where(campaign_experiments.c.experiment_number == experiment_number)).one_or_none()
    if row is None:
        return
    of_it = sa.select(campaigns.c.id).where(campaigns.c.number == row.campaign_number)
    campaign = _lock(connection, connection.execute(of_it).scalar_one())
    step = (EntryKind.JUDGED, row.place, row.workload)
    ledger = [each.entry for each in read_ledger(connection, campaign.number, row.place)]
    if any((each.kind, each.place, each.workload) == step for each in ledger):
        return
    mine = try_experiments(connection, campaign, row.place)
    found = improvement_of(mine[row.workload].spec, runs_of(connection, mine[row.workload]))
    if found.state is PairsState.OPEN:
        return
    verdict = verdict_after(found.state, row.workload, campaign.spec)
    judged = LedgerEntry(
        number=0,
        at=now,
        kind=EntryKind.JUDGED,
        place=row.place,
        workload=row.workload,
        state=found.state,
        improvement=None if row.workload else found,
        verdict=verdict,
    )
    _add(connection, campaign.number, judged)
    if verdict is None:
        by = sa.select(experiments.c.key_id).where(experiments.c.number == experiment_number)
        following = mine[row.workload + 1]
        _submit(connection, campaign.number, following, now, connection.execute(by).scalar_one(), None)
        begun = LedgerEntry(number=0, at=now, kind=EntryKind.HELD_OUT, place=row.place, workload=following.workload)
        _add(connection, campaign.number, begun)


def read_campaign(connection: Connection, campaign_id: str) -> StoredCampaign:
    """One campaign. Raises `NotFoundError`."""
    return _read(connection, sa.select(campaigns), campaign_id)


def list_campaigns(connection: Connection, limit: int, before: str | None) -> Sequence[sa.Row[str, str, float]]:
    """Id, name and moment of a page of them, the newest first. Raises `NotFoundError`."""
    this = campaigns.c
    query = sa.select(this.id, this.name, this.created_at).order_by(this.number.desc()).limit(limit)
    if before is not None:
        number = connection.execute(sa.select(this.number).where(this.id == validate_id(before))).scalar_one_or_none()
        if number is None:
            raise NotFoundError(f"there is no campaign {before!r}")
        query = query.where(this.number < number)
    return connection.execute(query).all()


def find_try(connection: Connection, experiment_id: str) -> TryPlace | None:
    """Which try an experiment is; None for any other experiment."""
    query = sa.select(campaigns.c.id, campaigns.c.name, campaign_experiments.c.place)
    query = query.join(campaign_experiments, campaign_experiments.c.campaign_number == campaigns.c.number)
    query = query.join(experiments, experiments.c.number == campaign_experiments.c.experiment_number)
    row = connection.execute(query.where(experiments.c.id == validate_id(experiment_id))).one_or_none()
    return None if row is None else TryPlace(campaign_id=row.id, campaign=row.name, place=row.place)


def read_ledger(connection: Connection, campaign_number: int, place: int | None = None) -> tuple[StoredEntry, ...]:
    """All entries, or those of one try, the first one first."""
    query = sa.select(campaign_entries.c.body, campaign_entries.c.hash)
    mine = query.where(campaign_entries.c.campaign_number == campaign_number).order_by(campaign_entries.c.number)
    if place is not None:
        # Few are read as JSON, for this is asked whenever a run of the try has ended.
        body = campaign_entries.c.body
        mine = mine.where(sa.or_(*(body.contains(f'"place":{place}{end}') for end in (",", "}"))))
    entries = (
        StoredEntry(entry=_stored(LedgerEntry, row.body, campaign_number), body=row.body, hash=row.hash)
        for row in connection.execute(mine)
    )
    return tuple(each for each in entries if place in (None, each.entry.place))


def try_experiments(
    connection: Connection, campaign: StoredCampaign, place: int | None = None
) -> tuple[TryExperiment, ...]:
    """What a try, or all of them, may run, in the order of tries and workloads. Raises `NotFoundError`."""
    joined = campaign_experiments.outerjoin(
        experiments, experiments.c.number == campaign_experiments.c.experiment_number
    )
    columns = [campaign_experiments.c[name] for name in ("place", "workload", "spec", "experiment_number")]
    query = sa.select(*columns, experiments.c.id).select_from(joined)
    query = query.where(campaign_experiments.c.campaign_number == campaign.number)
    if place is not None:
        query = query.where(campaign_experiments.c.place == place)
    rows = connection.execute(query.order_by(campaign_experiments.c.place, campaign_experiments.c.workload)).all()
    if place is not None and not rows:
        raise NotFoundError(f"campaign {campaign.id} has no try {place}; register it first")
    return tuple(
        TryExperiment(
            place=row.place,
            workload=row.workload,
            spec=_stored(ComparisonSpec, row.spec, campaign.number),
            spec_hash=hashlib.sha256(str(row.spec).encode()).hexdigest(),
            number=row.experiment_number,
            id=row.id,
        )
        for row in rows
    )


def runs_of(connection: Connection, tried: TryExperiment) -> tuple[RunRecord, ...]:
    """The runs of a try on a workload so far; those on a held-out one where they are seen."""
    if tried.id is None:
        return ()
    where = RunFilter(experiment_id=tried.id)
    return reads.run_page(connection, where=where, sort=None, limit=None, after=None)


def runs_used(connection: Connection, campaign_number: int) -> int:
    """Of all tries on all workloads."""
    of_it = sa.select(campaign_experiments.c.experiment_number).where(
        campaign_experiments.c.campaign_number == campaign_number,
        campaign_experiments.c.experiment_number.is_not(None),
    )
    query = sa.select(sa.func.count()).select_from(runs).where(runs.c.experiment_number.in_(of_it))
    return int(connection.execute(query).scalar_one())


def _lock(connection: Connection, campaign_id: str) -> StoredCampaign:
    return _read(connection, sa.select(campaigns).with_for_update(key_share=True), campaign_id)


def _read(connection: Connection, query: sa.Select[Any], campaign_id: str) -> StoredCampaign:
    row = connection.execute(query.where(campaigns.c.id == validate_id(campaign_id))).one_or_none()
    if row is None:
        raise NotFoundError(f"there is no campaign {campaign_id!r}")
    return _campaign(row)


def _stored(kind: type[Stored], content: object, campaign_number: int) -> Stored:
    try:
        found: Stored = integrity.stored(kind, content)
    except DamagedError as error:
        what = "ledger" if kind is LedgerEntry else "specification"
        raise DamagedError(f"the stored {what} of campaign number {campaign_number} {error}") from error
    return found


def _campaign(row: sa.Row[Any]) -> StoredCampaign:
    spec = _stored(OpenedCampaign, row.spec, row.number)
    return StoredCampaign(
        number=row.number, id=row.id, name=row.name, spec=spec, created_at=row.created_at, key_id=row.key_id
    )


def _find_registered(connection: Connection, known: str, tried: TryRequest, key: str | None) -> int | None:
    query = sa.select(campaign_entries.c.body).where(campaign_entries.c.idempotency_key == known)
    body = connection.execute(query).scalar_one_or_none()
    if body is None:
        return None
    entry: LedgerEntry = integrity.stored(LedgerEntry, body)
    if entry.tried != tried:
        raise IdempotencyError(
            f"the idempotency key {key!r} belongs to try {entry.place}, which is another one; use a new key"
        )
    return entry.place


def _freeze(campaign: CampaignSpec, tried: TryRequest, place: int) -> Sequence[ComparisonSpec]:
    count, random, specs = campaign.most_pairs(place), secrets.SystemRandom(), []
    for workload in range(len(campaign.workloads())):
        try:
            specs.append(campaign.comparison(tried, place, workload, random.sample(range(SEEDS), count)))
        except ValidationError as error:
            said = f"{tried.optimizer} cannot be tried here: {first_fault(error)}"
            if workload:  # and no word of what it is
                said = f"{tried.optimizer} cannot train a held-out workload; try another optimizer"
            raise ConflictError(said) from error
    return specs


def _submit(
    connection: Connection,
    campaign_number: int,
    tried: TryExperiment,
    now: float,
    by: str | None,
    most_waiting: int | None,
) -> str:
    submittal = Submittal.from_spec(tried.spec, None, by=by)
    (answer,) = store_experiments(connection, [submittal], now, most_waiting)
    if isinstance(answer, OrchestratorError):
        raise answer
    number = sa.select(experiments.c.number).where(experiments.c.id == answer[0]).scalar_subquery()
    mine = sa.update(campaign_experiments).where(
        campaign_experiments.c.campaign_number == campaign_number,
        campaign_experiments.c.place == tried.place,
        campaign_experiments.c.workload == tried.workload,
    )
    connection.execute(mine.values(experiment_number=number))
    return answer[0]


def _add(connection: Connection, campaign_number: int, entry: LedgerEntry, key: str | None = None) -> None:
    """Append to the ledger of a campaign that this transaction has locked, or just made."""
    query = sa.select(campaign_entries.c.number, campaign_entries.c.hash)
    mine = query.where(campaign_entries.c.campaign_number == campaign_number)
    last = connection.execute(mine.order_by(campaign_entries.c.number.desc()).limit(1)).one_or_none()
    number, before = (1, NO_HASH) if last is None else (last.number + 1, last.hash)
    body = entry.model_copy(update={"number": number}).body()
    row: dict[str, object] = {"campaign_number": campaign_number, "number": number, "body": body}
    row |= {"hash": entry_hash(before, body), "idempotency_key": key}
    connection.execute(sa.insert(campaign_entries), row)
