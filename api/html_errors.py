"""Answers for people: who opens an address in a browser reads a page where a program gets a problem as JSON."""

import json

from fastapi import Response
from starlette.datastructures import Headers
from starlette.types import Scope

from dashboards.render import refused_page

FORM = "application/x-www-form-urlencoded"
HEADINGS = {
    400: "Not understood",
    403: "Not allowed",
    404: "Nothing here",
    405: "Not possible here",
    409: "Not possible now",
    413: "Too large",
    422: "Not understood",
    429: "Too much at once",
    500: "Something broke",
    503: "Not reachable for a moment",
    507: "No room",
}


def ask_for_a_page(scope: Scope, headers: Headers) -> bool:
    """Whether a browser waits for something to show."""
    return (
        scope["method"] == "GET"
        and "text/html" in headers.get("accept", "")
        and not scope["path"].startswith(("/v1/", "/static/"))
    )


def wait_for_a_page(scope: Scope, headers: Headers) -> bool:
    """Whether a browser shows whatever comes: it asks for a page, or a form of a page was sent. Scripts accept all."""
    sent = scope["method"] == "POST" and headers.get("content-type", "").startswith(FORM)
    return ask_for_a_page({**scope, "method": "GET"} if sent else scope, headers)


def as_a_page(problem: Response) -> Response:
    """The same problem with the same status and headers, for people."""
    told = json.loads(bytes(problem.body))
    heading = HEADINGS.get(problem.status_code, told["title"])
    page = refused_page(problem.status_code, heading, told["detail"])
    taken = ("content-length", "content-type", "cache-control")
    page.raw_headers += [(name, value) for name, value in problem.raw_headers if name.decode() not in taken]
    return page
