"""What people do with experiments beside running them, over REST: labels, a note, delete, restore, clone."""

import re
from typing import Annotated

from fastapi import APIRouter, Header, Response

from api.routes.context import BenchDependency, CallerDependency, ExperimentIdPath, answered, problems, revision_tag
from api.routes.experiments import IdempotencyKey
from orchestrator.annotations import AnnotationChange
from orchestrator.names import Name
from orchestrator.records import AnyExperiment, Submission
from worker.records.result import Record

router = APIRouter(prefix="/experiments", tags=["experiments"])

IfMatch = Annotated[
    str | None,
    Header(
        alias="If-Match",
        pattern=r'^(\*|(W/)?"[0-9]{1,15}")$',  # a proxy that compresses makes a tag weak
        description="The `ETag` of the experiment as it was read; 412 where its labels or its note were changed since.",
    ),
]


class CloneRequest(Record):
    """What is to be different about a clone."""

    name: Name | None = None
    """Null is the name of the experiment that is cloned."""


@router.patch("/{experiment_id}", response_model=AnyExperiment, responses=problems(403, 404, 412, 413, 422))
def annotate(
    experiment_id: ExperimentIdPath,
    change: AnnotationChange,
    bench: BenchDependency,
    caller: CallerDependency,
    if_match: IfMatch = None,
) -> Response:
    """Change labels and note, of any experiment in any state; what is left out stays as it is.

    With `If-Match` only what nobody has changed since it was read: else the answer is 412, and nothing is changed.
    """
    seen = re.search("[0-9]+", if_match or "")
    revision = int(seen[0]) if seen else None
    by = caller.key.id if caller.key else None
    changed = bench.annotate(experiment_id, change, revision=revision, by=by)
    return answered(changed, headers=revision_tag(changed.revision))


@router.delete("/{experiment_id}", responses=problems(403, 404, 409))
def delete(experiment_id: ExperimentIdPath, bench: BenchDependency) -> AnyExperiment:
    """Delete an experiment of which every run has ended; repeating it changes nothing.

    It disappears at once from lists, totals and comparisons, and can be restored until `undo_until`; then its rows and
    its runs' folders are removed for good. Its copy in MLflow is left.
    """
    return bench.delete_experiment(experiment_id)


@router.post("/{experiment_id}/restore", responses=problems(403, 404, 409))
def restore(experiment_id: ExperimentIdPath, bench: BenchDependency) -> AnyExperiment:
    """Undo a deletion; repeating it changes nothing."""
    return bench.restore_experiment(experiment_id)


@router.post(
    "/{experiment_id}/clone",
    status_code=201,
    response_model=Submission,
    responses={200: {"model": Submission}, **problems(403, 404, 409, 413, 422)},
)
def clone(
    experiment_id: ExperimentIdPath,
    bench: BenchDependency,
    caller: CallerDependency,
    wanted: CloneRequest | None = None,
    key: IdempotencyKey = None,
) -> Response:
    """Queue a new experiment with the same specification; `cloned_from` says of which it is a clone."""
    by = caller.key.id if caller.key else None
    made = bench.clone_experiment(experiment_id, wanted.name if wanted else None, key, by=by)
    headers = {"Location": f"/v1/experiments/{made.experiment.id}"}
    return answered(made, 201 if made.created else 200, headers)
