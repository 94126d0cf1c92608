"""The ledger of a campaign, computed from its labelled experiments; the two ways to add to it.

    labelled experiments ─► each one's step, by its seeds ─► tries, and confirmations in the order of their numbers
                                                            ─► improved, not shown or undecided

Nothing is stored beside the experiments. A number is taken by the idempotency key of its first experiment: of two
callers at once the slower one gets the next number.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum

from pydantic import ValidationError

from api.campaigns.campaign import MOST_STEPS, Campaign, Stage, Step, comparisons_of, level_of
from api.client.client import Client
from api.client.messages import ClientError, InputError
from optim.catalog import Scalar
from orchestrator.kinds.comparison import Candidate, ComparisonSpec
from orchestrator.records import (
    SIGNIFICANCE,
    AnyExperiment,
    Comparison,
    Conclusion,
    Difference,
    ExperimentRecord,
)
from orchestrator.specs.faults import validation_faults
from worker.records.result import Record
from worker.schema import trust_stored_names

KEY_TAKEN = "urn:adapm-bench:problem:idempotency-key-reused"
PAGE = 500


class State(StrEnum):
    """The verdict on a confirmation."""

    UNDECIDED = "undecided"
    """A run has not ended; one that failed or was cancelled has to be retried first."""
    IMPROVED = "improved"
    """Better than the baseline on every workload, at the confirmation's level."""
    NOT_SHOWN = "not_shown"
    """Not shown to be better, which is no proof of the contrary."""


class StepResult(Record):
    """An experiment of a campaign and its answer so far."""

    workload: int
    experiment_id: str
    complete: bool
    """Whether every run has a result."""
    conclusion: Conclusion
    """The conclusion of the experiment by itself, as one comparison at 5 %."""
    difference: Difference | None
    """Candidate less baseline."""


class LedgerEntry(Record):
    """A try, or a confirmation, with its experiments by workload."""

    stage: Stage
    number: int
    candidate: Candidate
    note: str
    results: tuple[StepResult, ...]
    level: float | None
    """The largest chance of a false claim; null of a try, which claims nothing."""
    state: State | None
    """Null of a try."""


class Ledger(Record):
    """All tries and confirmations of a campaign."""

    name: str
    label: str
    tries: tuple[LedgerEntry, ...]
    confirmations: tuple[LedgerEntry, ...]
    next_level: float
    """The level of the next confirmation."""
    faults: tuple[str, ...]
    """Labelled experiments that count for nothing, and why."""


def is_improvement(conclusion: Conclusion, difference: Difference | None, confirmation: int) -> bool:
    """Return whether a workload shows the candidate to be better, at the level of that confirmation."""
    if conclusion is not Conclusion.BETTER or difference is None or difference.p_value is None:
        return False
    return difference.p_value * comparisons_of(confirmation) < SIGNIFICANCE


def read_ledger(client: Client, campaign: Campaign) -> Ledger:
    """Return the ledger from the experiments that the service has now."""
    experiments = [*_labelled(client, campaign, deleted=False), *_labelled(client, campaign, deleted=True)]
    comparison_ids = [
        experiment.id
        for experiment in experiments
        if isinstance(experiment.spec, ComparisonSpec) and experiment.deleted_at is None
    ]
    return make_ledger(campaign, experiments, {id: client.compare(id) for id in comparison_ids})


def try_candidate(
    client: Client, campaign: Campaign, optimizer: str, lr: float, options: Mapping[str, Scalar], note: str = ""
) -> LedgerEntry:
    """Submit a candidate on the campaign's few seeds; one that was tried already is returned as it is. Raises
    `InputError` if it cannot be trained on a workload of the campaign."""
    try:
        candidate = Candidate(optimizer=optimizer, learning_rates=(lr,), options=dict(options))
        for workload in range(len(campaign.workloads())):
            campaign.comparison(Step(Stage.CONFIRMATION, 1, workload), candidate)
    except ValidationError as error:
        raise InputError(
            f"{optimizer} cannot be tried here: {validation_faults(error, ComparisonSpec)[0].text()}"
        ) from error
    tries = read_ledger(client, campaign).tries
    number = _number_of(tries, candidate)
    if number is None:
        number = _submit_first(client, campaign, Stage.TRY, candidate, note)
    return _entry_of(read_ledger(client, campaign).tries, number)


def confirm(client: Client, campaign: Campaign, try_number: int) -> LedgerEntry:
    """Submit the confirmation of a try, which spends its level for good. A candidate has one confirmation: asked for
    again, what is missing of it is submitted."""
    ledger = read_ledger(client, campaign)
    tried = _entry_of(ledger.tries, try_number)
    number = _number_of(ledger.confirmations, tried.candidate)
    if number is None:
        number = _submit_first(client, campaign, Stage.CONFIRMATION, tried.candidate, tried.note)
    for workload in range(1, len(campaign.workloads())):
        _submit(client, campaign, Step(Stage.CONFIRMATION, number, workload), tried.candidate, tried.note)
    return _entry_of(read_ledger(client, campaign).confirmations, number)


def make_ledger(campaign: Campaign, experiments: Iterable[AnyExperiment], answers: Mapping[str, Comparison]) -> Ledger:
    """Return the ledger that follows from labelled experiments and, by their ids, their answers."""
    steps, experiments_by_step, faults = campaign.steps_by_seeds(), dict[Step, ExperimentRecord](), list[str]()
    for experiment in sorted(experiments, key=lambda experiment: experiment.created_at):
        spec = experiment.spec
        step = steps.get(spec.seeds[0]) if isinstance(spec, ComparisonSpec) else None
        if step is None or not isinstance(experiment, ExperimentRecord) or not isinstance(spec, ComparisonSpec):
            faults.append(f"experiment {experiment.id} is not a step of this campaign")
        elif not _is_step(campaign, step, spec):
            faults.append(f"experiment {experiment.id} has the seeds of {step}, and another specification")
        elif step in experiments_by_step:
            faults.append(f"experiment {experiment.id} repeats {step}")
        else:
            experiments_by_step[step] = experiment
            if experiment.deleted_at is not None:
                faults.append(
                    f"experiment {experiment.id}, {step}, was deleted; `adapm-bench delete {experiment.id} --undo`"
                )
    tries, confirmations = (_entries(campaign, stage, experiments_by_step, answers) for stage in Stage)
    return Ledger(
        name=campaign.name,
        label=campaign.label(),
        tries=tries,
        confirmations=confirmations,
        next_level=level_of(1 + (confirmations[-1].number if confirmations else 0)),
        faults=tuple(faults),
    )


def _labelled(client: Client, campaign: Campaign, *, deleted: bool) -> Iterator[AnyExperiment]:
    cursor: str | None = None
    while page := client.experiments(labels=[campaign.label()], limit=PAGE, before=cursor, deleted=deleted):
        yield from page
        cursor = page[-1].id


def _is_step(campaign: Campaign, step: Step, spec: ComparisonSpec) -> bool:
    with trust_stored_names():  # the catalog may have lost an optimizer since
        return campaign.comparison(step, spec.candidates[-1]).content_hash() == spec.content_hash()


def _entries(
    campaign: Campaign,
    stage: Stage,
    experiments_by_step: Mapping[Step, ExperimentRecord],
    answers: Mapping[str, Comparison],
) -> tuple[LedgerEntry, ...]:
    """Return the entries of a stage, by number."""
    by_number: dict[int, list[tuple[int, ExperimentRecord]]] = {}
    for step, experiment in sorted(experiments_by_step.items()):
        if step.stage is stage:
            by_number.setdefault(step.number, []).append((step.workload, experiment))
    return tuple(_entry(campaign, stage, number, experiments, answers) for number, experiments in by_number.items())


def _entry(
    campaign: Campaign,
    stage: Stage,
    number: int,
    experiments: Sequence[tuple[int, ExperimentRecord]],
    answers: Mapping[str, Comparison],
) -> LedgerEntry:
    first = experiments[0][1]
    assert isinstance(first.spec, ComparisonSpec)
    results = tuple(_result(workload, experiment, answers.get(experiment.id)) for workload, experiment in experiments)
    is_claim = stage is Stage.CONFIRMATION
    return LedgerEntry(
        stage=stage,
        number=number,
        candidate=first.spec.candidates[-1],
        note=first.note.text if first.note else "",
        results=results,
        level=level_of(number) if is_claim else None,
        state=_state(results, number, len(campaign.workloads())) if is_claim else None,
    )


def _result(workload: int, experiment: ExperimentRecord, answer: Comparison | None) -> StepResult:
    assert isinstance(experiment.spec, ComparisonSpec)
    rows = answer.rows if answer else ()
    row = next((row for row in rows if not row.is_baseline), None)
    seeds = len(experiment.spec.seeds)
    return StepResult(
        workload=workload,
        experiment_id=experiment.id,
        complete=bool(rows) and all(row.instability is not None and row.instability.runs == seeds for row in rows),
        conclusion=row.conclusion if row else Conclusion.NO_LOSS,
        difference=row.difference if row else None,
    )


def _state(results: Sequence[StepResult], confirmation: int, workloads: int) -> State:
    if len(results) < workloads or not all(result.complete for result in results):
        return State.UNDECIDED
    shown = (is_improvement(result.conclusion, result.difference, confirmation) for result in results)
    return State.IMPROVED if all(shown) else State.NOT_SHOWN


def _submit_first(client: Client, campaign: Campaign, stage: Stage, candidate: Candidate, note: str) -> int:
    """Submit the first experiment of a try or confirmation under the first free number, which is returned. One that
    was submitted and not labelled, because its process was killed, is found by its number and labelled."""
    for number in range(1, MOST_STEPS + 1):
        try:
            _submit(client, campaign, Step(stage, number), candidate, note)
        except ClientError as error:
            if error.kind != KEY_TAKEN:
                raise
        else:
            return number
    raise InputError(f"a campaign has at most {MOST_STEPS:,} tries and as many confirmations")


def _submit(client: Client, campaign: Campaign, step: Step, candidate: Candidate, note: str) -> None:
    """Submit a step and label it; what is there already stays as it is."""
    key = f"{campaign.label()}.{step.stage}.{step.number}.{step.workload}"
    experiment = client.submit(campaign.comparison(step, candidate), key=key).experiment
    if campaign.label() not in experiment.labels:
        client.add_labels(experiment.id, campaign.label())
        if note:
            client.write_note(experiment.id, note)


def _number_of(entries: Iterable[LedgerEntry], candidate: Candidate) -> int | None:
    return next((entry.number for entry in entries if entry.candidate == candidate), None)


def _entry_of(entries: Iterable[LedgerEntry], number: int) -> LedgerEntry:
    entry = next((entry for entry in entries if entry.number == number), None)
    if entry is None:
        raise InputError(f"the campaign has no try {number}; its ledger lists them")
    return entry
