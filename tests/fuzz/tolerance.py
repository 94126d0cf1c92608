"""Failures of schemathesis that are not faults: each with its reason, as narrow as it can be."""

from collections.abc import Mapping
from typing import Any

from schemathesis.core.failures import Failure
from schemathesis.openapi.checks import RejectedPositiveData, UnsupportedMethodResponse

BETWEEN_FIELDS: Mapping[str, str] = {
    "POST /v1/experiments": "what depends on several fields of a specification no schema says",
    "POST /v1/experiments/{experiment_id}/clone": "a specification of former days may be refused today",
    "POST /v1/attempts/{run_id}/{attempt}/points": "that columns are of equal length no schema says",
    "GET /v1/experiments": "which letters are printable, as a label's have to be, no pattern says",
    "PATCH /v1/experiments/{experiment_id}": "which letters are printable, as a label's have to be, no pattern says",
    "POST /v1/runs/{run_id}/{action}": "that a number of processes is of resume and retry no schema says",
    "GET /v1/external-experiments": "which letters are printable, as a label's have to be, no pattern says",
    "POST /v1/external-experiments/{external_id}/labels": "which letters are printable no pattern says",
    "GET /v1/runs/table": "where a page begins, as a field of a run writes it, no schema says",
    "GET /v1/fits": "what may be predicted is any number of parameters, however it is written, or a model",
    "POST /v1/external-runs/{external_id}/lines": "a whole number is written without a decimal point",
    "POST /v1/keys": "a whole number is written without a decimal point",
    "POST /v1/webhooks": "which URLs may be told is a setting of the operator's",
}
"""Operations that may refuse what their schema allows, with a fault that says what is wrong."""
REFUSED, TOO_LARGE = 422, 413


def is_fault(failure: Failure, case: Any, response: Any) -> str | None:
    """None for a fault; else the reason why it is none."""
    label = case.operation.label
    if isinstance(failure, RejectedPositiveData) and response.status_code == REFUSED:
        return BETWEEN_FIELDS.get(label)
    if isinstance(failure, RejectedPositiveData) and response.status_code == TOO_LARGE:
        return "how many bytes a body may have no schema says"
    if isinstance(failure, UnsupportedMethodResponse) and response.status_code == REFUSED:
        return "a POST below an experiment or a run is an action, so an unknown word is refused as one"
    return None
