"""`Campaigns`: tries at improvement under one error: opened, registered, submitted, judged, told again from results.

What is held out is read here and nowhere else for a caller, and told to `held_out` alone.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import groupby
from operator import attrgetter

import sqlalchemy as sa
from pydantic import ValidationError
from sqlalchemy.engine import Connection

from orchestrator.campaigns.improvement import improvement_of
from orchestrator.campaigns.ledger import (
    AnyCampaign,
    CampaignRecord,
    CampaignSpec,
    DamagedCampaign,
    EntryKind,
    HeldOutState,
    HeldOutTry,
    HeldOutWorkloads,
    Ledger,
    LedgerEntry,
    TryPlace,
    TryRecord,
    TryRequest,
    TryState,
    chain_faults,
    replay_faults,
    state_of,
    verdict_sentence,
)
from orchestrator.errors import ConflictError, DamagedError, NotFoundError
from orchestrator.jobs import CLAIMABLE, LIVE, LeasePolicy, RunAction, RunStatus
from orchestrator.kinds.registry import ExperimentSpec
from orchestrator.records import RunRecord
from orchestrator.store.database import Database
from orchestrator.store.queue import campaigns as stored
from orchestrator.store.queue import run_actions
from orchestrator.store.tables import held_out_seen
from worker.schema import first_fault


class Campaigns:
    """Those of one database. Thread-safe; every method may raise `StoreError`, and those that name a campaign or a try
    raise `NotFoundError` where there is none."""

    def __init__(
        self,
        database: Database,
        policy: LeasePolicy,
        require_data: Callable[[ExperimentSpec], None],
        *,
        most_waiting: int | None = None,
    ) -> None:
        self._database, self._policy = database, policy
        self._require_data, self._most_waiting = require_data, most_waiting

    def open(self, spec: CampaignSpec, *, by: str | None = None) -> CampaignRecord:
        """Fix what a campaign is about. Raises `ConflictError` where its baseline cannot be trained on one of its
        workloads, `MissingDataError` where a person has to prepare data first."""
        for workload in range(len(spec.workloads())):
            name = f"held-out workload {workload}" if workload else "the workload"
            try:
                self._require_data(spec.comparison(spec.baseline, 1, workload, range(spec.most_pairs(1))))
            except ValidationError as error:
                raise ConflictError(f"the baseline does not go with {name}: {first_fault(error)}") from error
        return self.get(stored.open_campaign(self._database, spec, by=by))

    def page(self, *, limit: int = 50, before: str | None = None) -> tuple[AnyCampaign, ...]:
        """A page of campaigns, the newest first; `before` is the last one of the page before it."""
        with self._database.reading() as connection:
            return tuple(_any_record(connection, row) for row in stored.list_campaigns(connection, limit, before))

    def get(self, campaign_id: str) -> CampaignRecord:
        """One campaign, without what is held out."""
        with self._database.reading() as connection:
            return _record(connection, stored.read_campaign(connection, campaign_id))

    def register(
        self, campaign_id: str, tried: TryRequest, *, by: str | None = None, key: str | None = None
    ) -> TryRecord:
        """Freeze what is tried, and spend its level. Raises `ConflictError` where the campaign has no try left, or the
        optimizer cannot train its workloads."""
        return self.get_try(campaign_id, stored.register_try(self._database, campaign_id, tried, by=by, key=key))

    def submit(self, campaign_id: str, place: int, *, by: str | None = None) -> TryRecord:
        """Queue a registered try; repeating it changes nothing. Raises `ConflictError` where the campaign has had all
        of its runs, or too many of the key's wait."""
        stored.submit_try(self._database, campaign_id, place, by=by, most_waiting=self._most_waiting)
        return self.get_try(campaign_id, place)

    def retry(self, campaign_id: str, place: int) -> TryRecord:
        """Let a try that is held up go on: retry what failed or was cancelled, resume what is paused, on held-out
        workloads, too. Repeating it changes nothing."""
        with self._database.reading() as connection:
            campaign = stored.read_campaign(connection, campaign_id)
            ids = [each.id for each in stored.try_experiments(connection, campaign, place) if each.id is not None]
        with held_out_seen():
            for workload, experiment_id in enumerate(ids):
                for action in (RunAction.RESUME, RunAction.RETRY):
                    try:
                        run_actions.apply_to_experiment(self._database, self._policy, experiment_id, action)
                    except ConflictError:
                        if not workload:
                            raise
                        raise ConflictError(
                            f"held-out workload {workload} of try {place} would be refused today; ask an admin"
                        ) from None  # and no word of what it is
        return self.get_try(campaign_id, place)

    def get_try(self, campaign_id: str, place: int) -> TryRecord:
        """One try with its verdict, so far as its pairs tell."""
        with self._database.reading() as connection, held_out_seen():
            campaign = stored.read_campaign(connection, campaign_id)
            mine = stored.try_experiments(connection, campaign, place)
            entries = [each.entry for each in stored.read_ledger(connection, campaign.number, place)]
            return _try_record(connection, campaign, mine, entries)

    def place_of(self, experiment_id: str) -> TryPlace | None:
        """Which try an experiment is; None for one that is none."""
        with self._database.reading() as connection:
            return stored.find_try(connection, experiment_id)

    def tries(self, campaign_id: str) -> tuple[TryRecord, ...]:
        """All tries of a campaign, the first one first."""
        with self._database.reading() as connection, held_out_seen():
            campaign = stored.read_campaign(connection, campaign_id)
            entries: dict[int | None, list[LedgerEntry]] = {}
            for each in stored.read_ledger(connection, campaign.number):
                entries.setdefault(each.entry.place, []).append(each.entry)
            tries = groupby(stored.try_experiments(connection, campaign), key=attrgetter("place"))
            return tuple(_try_record(connection, campaign, list(mine), entries.get(place, [])) for place, mine in tries)

    def ledger(self, campaign_id: str) -> Ledger:
        """Every step of a campaign, each held against the stored specifications and results."""
        with self._database.reading() as connection, held_out_seen():
            campaign = stored.read_campaign(connection, campaign_id)
            known = stored.read_ledger(connection, campaign.number)
            of_all = stored.try_experiments(connection, campaign)
            entries = tuple(each.entry for each in known)
            hashes = tuple(each.hash for each in known)
            faults = chain_faults(entries, [each.body for each in known], hashes)
            faults += replay_faults(
                campaign.spec,
                entries,
                {(each.place, each.workload): each.spec for each in of_all},
                {(each.place, each.workload): each.spec_hash for each in of_all},
                {
                    (each.place, each.workload): improvement_of(each.spec, stored.runs_of(connection, each))
                    for each in of_all
                    if each.id is not None
                },
            )
        return Ledger(campaign_id=campaign.id, entries=entries, hashes=hashes, faults=tuple(faults))

    def held_out_workloads(self, campaign_id: str) -> HeldOutWorkloads:
        """The workloads that are held out, and how tries stand on them."""
        with self._database.reading() as connection, held_out_seen():
            campaign = stored.read_campaign(connection, campaign_id)
            found = []
            for each in stored.try_experiments(connection, campaign):
                if each.workload and each.id is not None:
                    runs = stored.runs_of(connection, each)
                    found.append(
                        HeldOutTry(
                            place=each.place,
                            workload=each.workload,
                            improvement=improvement_of(each.spec, runs),
                            runs=dict(Counter(run.status.value for run in runs)),
                            reasons=tuple(dict.fromkeys(run.reason for run in runs if run.reason)),
                        )
                    )
        return HeldOutWorkloads(campaign_id=campaign.id, workloads=campaign.spec.held_out, tries=tuple(found))


def _any_record(connection: Connection, row: sa.Row[str, str, float]) -> AnyCampaign:
    try:
        return _record(connection, stored.read_campaign(connection, row.id))
    except DamagedError as error:
        return DamagedCampaign(**row._mapping, damaged=str(error))


def _record(connection: Connection, campaign: stored.StoredCampaign) -> CampaignRecord:
    known, spec = stored.read_ledger(connection, campaign.number), campaign.spec
    entries = [each.entry for each in known]
    tries = sum(each.kind is EntryKind.REGISTERED for each in entries)
    verdicts = Counter(each.verdict for each in entries if each.verdict is not None)
    following = tries + 1 if tries < spec.most_tries else None
    return CampaignRecord(
        id=campaign.id,
        name=campaign.name,
        created_at=campaign.created_at,
        key_id=campaign.key_id,
        workload=spec.workload,
        baseline=spec.baseline,
        held_out=len(spec.held_out),
        gain=spec.gain,
        error=spec.error,
        most_seeds=spec.most_seeds,
        seeds_per_look=spec.seeds_per_look,
        most_tries=spec.most_tries,
        most_runs=spec.most_runs,
        loss_name=spec.workload.task.loss_name,
        loss_unit=spec.workload.task.loss_unit,
        tries=tries,
        improved=verdicts[TryState.IMPROVED],
        not_shown=verdicts[TryState.NOT_SHOWN],
        runs=stored.runs_used(connection, campaign.number),
        error_spent=sum(each.level for each in entries if each.level is not None),
        next_level=None if following is None else spec.level(following),
        next_most_pairs=None if following is None else spec.most_pairs(following),
        head=known[-1].hash,
    )


def _try_record(
    connection: Connection,
    campaign: stored.StoredCampaign,
    mine: Sequence[stored.TryExperiment],
    entries: Sequence[LedgerEntry],
) -> TryRecord:
    place = mine[0].place
    registered = next(each for each in entries if (each.kind, each.place) == (EntryKind.REGISTERED, place))
    if registered.tried is None or registered.level is None:
        raise NotFoundError(f"try {place} of campaign {campaign.id} cannot be read: its ledger was changed")
    judged = {each.workload: each for each in entries if (each.kind, each.place) == (EntryKind.JUDGED, place)}
    runs = {each.workload: stored.runs_of(connection, each) for each in mine}
    under_way = [runs[each.workload] for each in mine if each.id is not None and each.workload not in judged]
    known = judged.get(0)
    shown = known.improvement if known is not None else None
    record = TryRecord(
        campaign_id=campaign.id,
        place=place,
        tried=registered.tried,
        registered_at=registered.at,
        state=state_of(place, entries, held_up=any(_is_held_up(each) for each in under_way)),
        verdict="",
        level=registered.level,
        most_pairs=len(mine[0].spec.seeds),
        experiment_id=mine[0].id,
        improvement=shown or (improvement_of(mine[0].spec, runs[0]) if mine[0].id is not None else None),
        held_out=tuple(
            HeldOutState(
                workload=each.workload,
                begun=each.id is not None,
                state=judged[each.workload].state if each.workload in judged else None,
            )
            for each in mine[1:]
        ),
        runs=len(runs[0]),
    )
    task = campaign.spec.workload.task
    said = verdict_sentence(record, gain=campaign.spec.gain, loss=task.loss_name, unit=task.loss_unit)
    return record.model_copy(update={"verdict": said})


def _is_held_up(runs: Sequence[RunRecord]) -> bool:
    """Whether no run of an undecided experiment goes on by itself."""
    states = {run.status for run in runs}
    return not states & {*CLAIMABLE, *LIVE} and states != {RunStatus.SUCCEEDED}
