"""Short ids: where what was typed abbreviates only one id, the request is sent again with the whole one."""

from collections.abc import Generator
from typing import Final

import httpx2
from pydantic import BaseModel, ConfigDict, ValidationError

MOST_IDS: Final = 64
"""In one request: `compare` takes several."""


class NoSuchId(BaseModel):
    """What a problem says of an id that there is none of."""

    model_config = ConfigDict(extra="ignore")

    asked: str
    meant: str
    """The only id that it abbreviates."""


class ShortIds(httpx2.Auth):
    """Takes the beginning of an id for the id, as git does, and `BEGINNING-NUMBER` for a run's.

    It is for people, who see what came of it. Such a request changed nothing: there was nothing of that name.
    """

    def sync_auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
        """The request, and again with each short id written out."""
        response = yield request
        for _ in range(MOST_IDS):
            if response.status_code != httpx2.codes.NOT_FOUND:
                return
            response.read()
            try:
                found = NoSuchId.model_validate_json(response.content)
            except ValidationError:
                return
            request = _with_whole_id(request, found.asked, found.meant)
            response = yield request


def _with_whole_id(request: httpx2.Request, short: str, whole: str) -> httpx2.Request:
    path = "/".join(whole if part == short else part for part in request.url.path.split("/"))
    url = request.url.copy_with(path=path)
    if url.query:
        url = url.copy_with(
            params=[(key, whole if value == short else value) for key, value in url.params.multi_items()]
        )
    return httpx2.Request(
        request.method, url, headers=request.headers, stream=request.stream, extensions=request.extensions
    )
