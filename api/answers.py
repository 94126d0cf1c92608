"""Answers of the busiest routes: a record written to JSON once, on the thread that has read it.

What a route returns as a record FastAPI validates again, on another thread; a record of ours was validated when it was
made. At some hundred requests a second that thread's turn costs more than the database's work.
"""

from fastapi import Response
from pydantic import BaseModel

MEDIA_TYPE = "application/json"


def answered(record: BaseModel, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """The record as the whole answer; the route names its type as `response_model`, for OpenAPI."""
    return Response(record.model_dump_json(), status, headers, MEDIA_TYPE)


def revision_tag(revision: int) -> dict[str, str]:
    """The headers that say which revision of labels and note an answer has, for `If-Match`.

    Progress does not change it: a label is not refused because a run has taken a step. So it is no tag for caches,
    which are told to keep nothing.
    """
    return {"ETag": f'"{revision}"', "Cache-Control": "no-store"}
