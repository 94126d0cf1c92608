"""Campaigns: many tries at improving on a baseline, with one error for all of them. Records, and what they come to.

    open ─► register a try (its level is spent) ─► submit it ─► its pairs are looked at as they come
         └► … improved: shown on the workload, and then on every held-out one;  not shown: anything else

The ledger has an entry for each of these steps, each with the hash of the one before. What was judged follows from the
specifications as they were registered and the stored results alone: `replay_faults` does it again.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Final, Self

from pydantic import AfterValidator, Field, model_validator

from optim.catalog import Scalar
from orchestrator.annotations import plain_note
from orchestrator.campaigns.improvement import CUT, FIRST_PAIRS, Improvement, PairsState, most_pairs, try_level
from orchestrator.kinds.comparison import MOST_TRY_SEEDS, Candidate, ComparisonSpec, ImprovementTest, Sequential
from orchestrator.kinds.fields import LimitSeconds, Priority
from orchestrator.names import Name
from worker.records.result import Record
from worker.schema import Spec, canonical_json, is_stored, omit_default, raise_faults
from worker.spec.run import LearningRate, OptimizerName, Resources, Workload, option_faults
from worker.words import pluralize

BASELINE: Final = "baseline"
CANDIDATE: Final = "candidate"
"""What the two are called in every experiment of a campaign."""
MOST_HELD_OUT = 8
MOST_TRIES = 10_000
LONGEST_NOTE = 500
MOST_OPTIONS = 64
NO_HASH = "0" * 64
"""What the first entry follows."""

TryNote = Annotated[str, Field(max_length=LONGEST_NOTE), AfterValidator(plain_note)]


class TriedOptimizer(Spec):
    """An optimizer of the catalog at one learning rate: no code, no plan and no schedule of its own."""

    optimizer: OptimizerName
    lr: LearningRate
    options: Annotated[dict[str, Scalar], Field(max_length=MOST_OPTIONS)] = Field(default_factory=dict)
    """Those that differ from the catalog's defaults."""

    @model_validator(mode="after")
    def _require_known_options(self) -> Self:
        if not is_stored():
            raise_faults(type(self).__name__, option_faults(self.optimizer, self.options))
        return self

    def candidate(self, label: str) -> Candidate:
        """As a comparison has it."""
        return Candidate(optimizer=self.optimizer, learning_rates=(self.lr,), options=self.options, label=label)


class TryRequest(TriedOptimizer):
    """What is to be tried."""

    note: TryNote = ""
    """What the idea is, for people: plain text, which nothing reads."""


class CampaignSpec(Spec):
    """What is fixed before the first try."""

    name: Name
    workload: Workload
    baseline: TriedOptimizer
    gain: Annotated[float, Field(strict=True, gt=0, le=1e6)]
    """In units of the loss, what is worth finding. About the standard deviation of the difference of two runs with the
    same seed is right: a pair counts at most twice it, whichever way."""
    held_out: Annotated[tuple[Workload, ...], Field(max_length=MOST_HELD_OUT)] = ()
    """Workloads on which a candidate has to be better, too. Only admins are shown them, and nobody their runs."""
    error: Annotated[float, Field(strict=True, gt=0, le=0.5)] = 0.05
    """The chance that anything is called improved that is not, over all tries together."""
    most_seeds: Annotated[int, Field(strict=True, gt=FIRST_PAIRS, le=MOST_TRY_SEEDS)] = 96
    """Of one try on one workload, of which early tries may take fewer; most end after five to twenty."""
    seeds_per_look: Annotated[int, Field(strict=True, ge=1, le=16)] = 1
    """Added after each look; more keep more devices at work, and cost runs."""
    most_tries: Annotated[int, Field(strict=True, ge=1, le=MOST_TRIES)] = 500
    most_runs: Annotated[int, Field(strict=True, ge=1, le=10_000_000)] = 10_000
    """Of all tries together, from which on none is submitted; what goes on then goes on."""
    resources: Resources = Resources()
    priority: Priority = 0
    max_run_seconds: LimitSeconds | None = omit_default(None)

    def workloads(self) -> tuple[Workload, ...]:
        """The one that is shown, then those that are held out."""
        return self.workload, *self.held_out

    def level(self, place: int) -> float:
        """What the try at that place may spend, from 1."""
        return try_level(place, self.error)

    def most_pairs(self, place: int) -> int:
        """On each workload."""
        return max(min(most_pairs(self.level(place)), self.most_seeds), FIRST_PAIRS + 1)

    def comparison(self, tried: TriedOptimizer, place: int, workload: int, seeds: Sequence[int]) -> ComparisonSpec:
        """The experiment of a try on a workload; raises `ValidationError` where the two do not go together."""
        return ComparisonSpec(
            name=f"{self.name[:80]}, try {place}",
            workload=self.workloads()[workload],
            candidates=(self.baseline.candidate(BASELINE), tried.candidate(CANDIDATE)),
            baseline=BASELINE,
            seeds=tuple(seeds),
            sequential=Sequential(
                first_seeds=FIRST_PAIRS,
                seeds_per_look=self.seeds_per_look,
                improvement=ImprovementTest(level=self.level(place), gain=self.gain),
            ),
            resources=self.resources,
            priority=self.priority,
            max_run_seconds=self.max_run_seconds,
        )


class OpenedCampaign(CampaignSpec):
    """A campaign as it is stored."""

    salt: str = omit_default("")
    """Random, and shown to nobody: the ledger's first hash, which everybody sees, would else confirm guesses of what
    is held out. Campaigns from before have none."""


class TryState(StrEnum):
    """Where a try is."""

    REGISTERED = "registered"
    """It has its level, and none of its runs is queued."""
    RUNNING = "running"
    """Undecided yet: more pairs come by themselves."""
    HELD_UP = "held_up"
    """A run failed, was cancelled or paused: nothing goes on before it is retried or resumed."""
    IMPROVED = "improved"
    """Better than the baseline on the workload, and on every held-out one."""
    NOT_SHOWN = "not_shown"
    """It did not show that; which is no proof of the contrary."""


class EntryKind(StrEnum):
    """The steps that a ledger has."""

    OPENED = "opened"
    REGISTERED = "registered"
    SUBMITTED = "submitted"
    HELD_OUT = "held_out"
    """The next held-out workload has begun."""
    JUDGED = "judged"
    """On one workload."""


class LedgerEntry(Record):
    """One step of a campaign. What does not belong to its kind is null or empty."""

    number: int
    at: float
    kind: EntryKind
    place: int | None = None
    """Of the try."""
    workload: int | None = None
    """0 is the one that is shown."""
    tried: TryRequest | None = None
    level: float | None = None
    spec_hashes: tuple[str, ...] = ()
    """Of what is frozen: the campaign's, or those of a try's experiments, one for each workload."""
    experiment_id: str | None = None
    """Never one on a held-out workload."""
    state: PairsState | None = None
    improvement: Improvement | None = None
    """Never that on a held-out workload."""
    verdict: TryState | None = None
    """Where the try is decided by this."""

    def body(self) -> str:
        """What the ledger keeps."""
        return canonical_json(self.model_dump(mode="json", exclude_defaults=True)).decode()


def entry_hash(before: str, body: str) -> str:
    """Of an entry, from that of the one before."""
    return hashlib.sha256(f"{before}\n{body}".encode()).hexdigest()


class Ledger(Record):
    """All entries, and whether they follow from what is stored."""

    campaign_id: str
    entries: tuple[LedgerEntry, ...]
    hashes: tuple[str, ...]
    """Of each entry with all before it. Whoever keeps the last one sees whether anything before was changed."""
    faults: tuple[str, ...]
    """What does not follow from the stored specifications and results; empty where all does."""


class HeldOutState(Record):
    """How a try stands on one held-out workload: no more is told."""

    workload: int
    begun: bool
    state: PairsState | None
    """Null until it is judged."""


class TryRecord(Record):
    """One try and its verdict."""

    campaign_id: str
    place: int
    tried: TryRequest
    registered_at: float
    state: TryState
    verdict: str
    """A sentence."""
    level: float
    """What it has spent of the campaign's error, whatever becomes of it."""
    most_pairs: int
    experiment_id: str | None
    """That on the workload that is shown."""
    improvement: Improvement | None
    """On that workload, so far."""
    held_out: tuple[HeldOutState, ...]
    runs: int
    """So far, on the workload that is shown."""


class TryPlace(Record):
    """Which try an experiment is, and of which campaign."""

    campaign_id: str
    campaign: str
    """Its name."""
    place: int


class CampaignRecord(Record):
    """What anybody may see of a campaign."""

    id: str
    name: str
    created_at: float
    key_id: str | None
    workload: Workload
    baseline: TriedOptimizer
    held_out: int
    """How many workloads."""
    gain: float
    error: float
    most_seeds: int
    seeds_per_look: int
    most_tries: int
    most_runs: int
    loss_name: str
    loss_unit: str
    tries: int
    improved: int
    not_shown: int
    runs: int
    """Of all tries on all workloads."""
    error_spent: float
    next_level: float | None
    """Of the next try; null where there may be none."""
    next_most_pairs: int | None
    head: str
    """The hash of the last entry of the ledger."""


class DamagedCampaign(Record):
    """A campaign of which something stored cannot be read; it is listed, and nothing else."""

    id: str
    name: str
    created_at: float
    damaged: str
    """What cannot be read, and why, in a sentence."""


AnyCampaign = CampaignRecord | DamagedCampaign
"""A campaign in a list."""


class HeldOutTry(Record):
    """What an admin sees of a try on a held-out workload."""

    place: int
    workload: int
    improvement: Improvement
    runs: dict[str, int]
    """By their status."""
    reasons: tuple[str, ...]
    """Why runs of it wait, failed or were cancelled."""


class HeldOutWorkloads(Record):
    """The held-out side of a campaign, for admins."""

    campaign_id: str
    workloads: tuple[Workload, ...]
    tries: tuple[HeldOutTry, ...]


def state_of(place: int, entries: Iterable[LedgerEntry], *, held_up: bool = False) -> TryState:
    """Where a try is by its ledger."""
    mine = [entry for entry in entries if entry.place == place]
    if (decided := next((entry.verdict for entry in mine if entry.verdict is not None), None)) is not None:
        return decided
    if not any(entry.kind is EntryKind.SUBMITTED for entry in mine):
        return TryState.REGISTERED
    return TryState.HELD_UP if held_up else TryState.RUNNING


def verdict_after(state: PairsState, workload: int, campaign: CampaignSpec) -> TryState | None:
    """What a try is once its pairs on that workload have ended so; None where a held-out workload comes next."""
    if state is not PairsState.SHOWN:
        return TryState.NOT_SHOWN
    return TryState.IMPROVED if workload == len(campaign.held_out) else None


def verdict_sentence(record: TryRecord, *, gain: float, loss: str, unit: str) -> str:
    """What is known of a try, in a sentence or three."""
    found = record.improvement
    if record.state is TryState.REGISTERED or found is None or not found.pairs:
        begun = "not submitted yet" if record.state is TryState.REGISTERED else "no pair has ended yet"
        return f"Undecided: {begun}. Its level of {record.level:.2g} is spent.{_interruption_sentence(record)}"
    pairs = pluralize(found.pairs, "pair")
    measured = (
        f"the mean difference in {loss} over {pairs} is {found.mean:+.4f}{unit}, and lies between {found.low:+.4f} and "
        f"{found.high:+.4f} (each end at the level {record.level:.2g})"
    )
    match record.state:
        case TryState.IMPROVED:
            also = (
                f" The same was shown on {pluralize(len(record.held_out), 'held-out workload')}."
                if record.held_out
                else ""
            )
            said = f"Improved: {measured}.{also}"
        case TryState.NOT_SHOWN if found.state is PairsState.SHOWN:
            missed = next(each.workload for each in record.held_out if each.state not in (None, PairsState.SHOWN))
            said = f"Not shown: {measured}, but no improvement was shown on held-out workload {missed}."
        case TryState.NOT_SHOWN:
            why = {
                PairsState.FUTILE: "Further pairs would hardly have shown it.",
                PairsState.EXHAUSTED: "No pair is left.",
            }.get(found.state, "")
            said = f"Not shown: {measured}. {why}".rstrip()
        case _ if found.state is PairsState.SHOWN:
            said = f"Undecided: shown on the workload, where {measured}; a held-out workload is still to be judged."
        case _:
            said = f"Undecided: {measured}."
    said += _interruption_sentence(record)
    if found.cut_pairs:
        said += (
            f" {found.cut_pairs} of {pairs} count as ±{CUT * gain:g}{unit}, because they differ by more or the "
            "candidate has no loss"
        )
        usually = 4 * found.cut_pairs > found.pairs
        said += ": this shows which is usually better rather than which is better on average." if usually else "."
    return said


def _interruption_sentence(record: TryRecord) -> str:
    if record.state is not TryState.HELD_UP:
        return ""
    return " A run failed, was cancelled or paused: nothing goes on before it is retried or resumed."


def chain_faults(entries: Sequence[LedgerEntry], bodies: Sequence[str], hashes: Sequence[str]) -> list[str]:
    """What of a ledger was changed, left out or spent twice."""
    faults, before = [], NO_HASH
    for place, (entry, body, found) in enumerate(zip(entries, bodies, hashes, strict=True), start=1):
        if entry.number != place or entry_hash(before, body) != found:
            faults.append(f"entry {entry.number} does not follow the one before it: the ledger was changed")
        before = found
    registered = [entry.place for entry in entries if entry.kind is EntryKind.REGISTERED]
    if registered != list(range(1, len(registered) + 1)):
        faults.append("the registered tries are not numbered 1, 2, 3, …: a level was spent twice, or not at all")
    return faults


def replay_faults(
    campaign: OpenedCampaign,
    entries: Sequence[LedgerEntry],
    specs: Mapping[tuple[int, int], ComparisonSpec],
    hashes: Mapping[tuple[int, int], str],
    found: Mapping[tuple[int, int], Improvement],
) -> list[str]:
    """What of a ledger does not follow from the registered specifications and the stored results, both by try and
    workload."""
    faults = []
    for entry in entries:
        place, workload = entry.place or 0, entry.workload or 0
        if entry.kind is EntryKind.OPENED and entry.spec_hashes != (campaign.content_hash(),):
            faults.append("the campaign's specification is not the one that it was opened with")
        if entry.kind is EntryKind.REGISTERED:
            mine = [specs[key] for key in sorted(specs) if key[0] == place]
            if tuple(hashes[key] for key in sorted(specs) if key[0] == place) != entry.spec_hashes:
                faults.append(f"the specifications of try {place} are not those that were registered")
            levels = {
                each.sequential.improvement.level for each in mine if each.sequential and each.sequential.improvement
            }
            if levels != {entry.level} or entry.level != campaign.level(place):
                faults.append(f"try {place} was not judged at the level of its place, {campaign.level(place):.3g}")
        if entry.kind is EntryKind.JUDGED:
            again = found.get((place, workload))
            if again is None or again.state is not entry.state or (not workload and again != entry.improvement):
                faults.append(f"what try {place} was judged at does not follow from its stored results any more")
            elif entry.verdict is not verdict_after(again.state, workload, campaign):
                faults.append(f"the verdict on try {place} is not what follows from its pairs")
    return faults
