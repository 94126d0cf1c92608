"""Experiments over REST: submit, list, look, compare, cancel, pause, resume, retry, a live stream of changes.

And what keeps them in order: labels, a note, delete, restore, clone.
"""

import re
from collections.abc import AsyncIterator
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends, Header, Query, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.openapi.models import Example
from fastapi.sse import EventSourceResponse, ServerSentEvent
from pydantic import ConfigDict, Field

from api.records import ExperimentChange, Page
from api.routes.context import (
    CallerDependency,
    CellQuery,
    Cursor,
    ExperimentIdPath,
    IdempotencyKey,
    JsonRoute,
    Limit,
    State,
    WithLabels,
    cut_page,
    json_response,
    problems,
    revision_tag,
)
from dashboards.data.live import RECONNECT_MILLISECONDS, new_versions
from dashboards.files.figures import table_file
from dashboards.files.publication import TABLE_MEDIA_TYPES, TableFormat
from orchestrator.annotations import AnnotationChange
from orchestrator.errors import OrchestratorError
from orchestrator.jobs import RunAction
from orchestrator.kinds.fields import MOST_SEEDS
from orchestrator.kinds.registry import KINDS, ExperimentSpec
from orchestrator.names import Name
from orchestrator.records import AnyExperiment, CellRecord, Comparison, ExperimentRecord, SubmissionReceipt
from orchestrator.specs.preview import Preview
from orchestrator.specs.text import example, parse
from worker.records.result import Record

router = APIRouter(prefix="/experiments", tags=["experiments"], route_class=JsonRoute)

IfMatch = Annotated[
    str | None,
    Header(
        alias="If-Match",
        pattern=r'^(\*|(W/)?"[0-9]{1,15}")$',  # a proxy that compresses makes a tag weak
        description="The `ETag` of the experiment as it was read; 412 where its labels or its note were changed since.",
    ),
]

Deleted = Annotated[bool, Query(description="Those that were deleted and can be restored, instead of the others.")]


LastEventId = Annotated[
    int | None,
    Header(alias="Last-Event-ID", ge=0, le=2**63, description="The id of the last event that was heard, if any."),
]


SPEC_EXAMPLES: dict[str, Example] = {kind: {"value": parse(example(kind), kind)} for kind in KINDS}
"""The specification of each kind that `adapm-bench init` writes."""


class CloneRequest(Record):
    """The differences of a clone."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "Once more", "fresh_seeds": 3}]})

    name: Name | None = None
    """Null is the name of the experiment that is cloned."""
    fresh_seeds: Annotated[int, Field(strict=True, ge=1, le=MOST_SEEDS)] | None = None
    """The number of fresh seeds on which it was neither tuned nor judged, the next numbers, instead of its own: the
    question once more, answered by itself. Null: the same seeds."""
    keep_rates: bool = False
    """Whether a clone of a finished comparison trains each candidate on the fresh seeds only at its judged setting,
    without another tuning, and on all of them, even if the original added its seeds one look after the other."""


@router.post(
    "",
    status_code=201,
    response_model=SubmissionReceipt,
    responses={200: {"model": SubmissionReceipt}, **problems(409, 413, 422)},
)
def submit(
    spec: Annotated[ExperimentSpec, Body(openapi_examples=SPEC_EXAMPLES)],
    state: State,
    caller: CallerDependency,
    key: IdempotencyKey = None,
) -> Response:
    """Queue an experiment and all of its runs; 200 where its idempotency key had already made it."""
    receipt = state.services.experiments.submit(spec, key, by=caller.key_id())
    headers = {"Location": f"/v1/experiments/{receipt.experiment.id}"}
    return json_response(receipt, 201 if receipt.created else 200, headers)


@router.post("/validate", responses=problems(413))
def validate(fields: Annotated[Any, Body(openapi_examples=SPEC_EXAMPLES)], state: State) -> Preview:
    """Check a specification: faults with JSON pointers, or runs, tokens, estimated cost and memory.

    Nothing is stored; the answer is 200 whatever is wrong with the specification.
    """
    return state.services.specifications.preview(fields)


@router.get("", responses=problems(404, 422))
def experiments(
    state: State,
    limit: Limit = 50,
    before: Cursor = None,
    label: WithLabels = (),
    deleted: Deleted = False,
) -> Page[AnyExperiment]:
    """List experiments, newest first; `before` is the last id of the page before."""
    records = state.services.experiments.page(limit=limit + 1, before=before, labels=label, deleted=deleted)
    return cut_page(records, limit, lambda experiment: experiment.id)


@router.get("/{experiment_id}", response_model=ExperimentRecord, responses=problems(404))
def experiment(experiment_id: ExperimentIdPath, state: State) -> Response:
    """Return an experiment with its specification, state and progress."""
    record = state.services.experiments.get(experiment_id)
    return json_response(record, headers=revision_tag(record.revision))


@router.get("/{experiment_id}/comparison", response_model=Comparison, responses=problems(404, 409))
def comparison(experiment_id: ExperimentIdPath, state: State, cell: CellQuery = None) -> Response:
    """Return the table of verdicts over the runs that have ended; of a scaling experiment that of one cell."""
    return json_response(state.services.analysis.compare(experiment_id, cell))


@router.get("/{experiment_id}/cells", responses=problems(404, 409))
def cells(experiment_id: ExperimentIdPath, state: State) -> Page[CellRecord]:
    """List the cells of a scaling experiment, each with its table of verdicts, the smallest first."""
    return Page(items=state.services.analysis.cells(experiment_id))


@router.get(
    "/{experiment_id}/comparison/{form}",
    response_class=Response,
    responses={
        200: {"description": "The table as a file.", "content": {kind: {} for kind in TABLE_MEDIA_TYPES.values()}},
        **problems(404, 409),
    },
)
def comparison_table(
    experiment_id: ExperimentIdPath, form: TableFormat, state: State, cell: CellQuery = None
) -> Response:
    """Return the table of verdicts as LaTeX (booktabs), Markdown or CSV."""
    return table_file(state.services.analysis.compare(experiment_id, cell), form)


def existing_experiment(experiment_id: ExperimentIdPath, state: State) -> AnyExperiment:
    """Return the experiment, looked up before a stream begins: afterwards it is too late for a 404."""
    return state.services.experiments.get_any(experiment_id)


@router.get("/{experiment_id}/stream", response_class=EventSourceResponse, responses=problems(404, 422))
async def stream(
    known: Annotated[AnyExperiment, Depends(existing_experiment)],
    state: State,
    last_event_id: LastEventId = None,
) -> AsyncIterator[ServerSentEvent]:
    """Send `changed` events with version, counts and progress: at once, then coalesced to one in 0.7 seconds.

    An event's id is its version. A listener that comes back with `Last-Event-ID` gets what it missed as one event, or
    none if nothing has changed. The stream stays open after the last run has ended, until the listener goes; a comment
    every 15 seconds keeps it alive.
    """
    yield ServerSentEvent(comment="listening", retry=RECONNECT_MILLISECONDS)
    read_version = partial(state.services.experiments.version, known.id)
    try:
        async for version in new_versions(read_version, last_event_id, stopping=state.stopping):
            record = await run_in_threadpool(state.services.experiments.get_any, known.id)
            change = ExperimentChange(
                experiment_id=record.id,
                version=version,
                done=record.counts.done(),
                counts=record.counts,
                progress=record.progress,
            )
            yield ServerSentEvent(event="changed", id=str(version), data=change)
    except OrchestratorError:
        return  # deleted, or the store is away: the stream ends, and the listener connects again by itself


@router.patch("/{experiment_id}", response_model=AnyExperiment, responses=problems(403, 404, 412, 413, 422))
def annotate(
    experiment_id: ExperimentIdPath,
    change: AnnotationChange,
    state: State,
    caller: CallerDependency,
    if_match: IfMatch = None,
) -> Response:
    """Change an experiment's labels and note, in any state; fields that are left out stay as they are.

    With `If-Match` the answer is 412, and nothing is changed, if somebody has changed it since that version.
    """
    revision_match = re.search("[0-9]+", if_match or "")
    revision = int(revision_match[0]) if revision_match else None
    changed = state.services.experiments.annotate(experiment_id, change, revision=revision, by=caller.key_id())
    return json_response(changed, headers=revision_tag(changed.revision))


@router.delete("/{experiment_id}", responses=problems(403, 404, 409))
def delete(experiment_id: ExperimentIdPath, state: State) -> AnyExperiment:
    """Delete an experiment whose runs have all ended; repeating it changes nothing.

    It disappears at once from lists, totals and comparisons, and can be restored until `undo_until`; then its rows and
    its runs' folders are removed for good. Its copy in MLflow is left.
    """
    return state.services.experiments.delete(experiment_id)


@router.post("/{experiment_id}/restore", responses=problems(403, 404, 409))
def restore(experiment_id: ExperimentIdPath, state: State) -> AnyExperiment:
    """Undo a deletion; repeating it changes nothing."""
    return state.services.experiments.restore(experiment_id)


@router.post(
    "/{experiment_id}/clone",
    status_code=201,
    response_model=SubmissionReceipt,
    responses={200: {"model": SubmissionReceipt}, **problems(403, 404, 409, 413, 422)},
)
def clone(
    experiment_id: ExperimentIdPath,
    state: State,
    caller: CallerDependency,
    wanted: CloneRequest | None = None,
    key: IdempotencyKey = None,
) -> Response:
    """Queue a new experiment with the same specification; `cloned_from` says of which it is a clone."""
    wanted, caller_key = wanted or CloneRequest(), caller.key_id()
    receipt = state.services.experiments.clone(
        experiment_id, wanted.name, key, fresh_seeds=wanted.fresh_seeds, keep_rates=wanted.keep_rates, by=caller_key
    )
    headers = {"Location": f"/v1/experiments/{receipt.experiment.id}"}
    return json_response(receipt, 201 if receipt.created else 200, headers)


@router.post("/{experiment_id}/{action}", responses=problems(403, 404, 422))
def apply(experiment_id: ExperimentIdPath, action: RunAction, state: State) -> AnyExperiment:
    """Cancel or pause every unfinished run, resume every paused one, or retry every failed or cancelled one. Training
    runs write a checkpoint before they stop; repeating the request changes nothing."""
    return state.services.experiments.apply(experiment_id, action)
