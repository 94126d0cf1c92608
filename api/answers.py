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
