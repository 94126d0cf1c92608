"""Reads everything that an application answers: from `/` on, every link, form, figure and file, and REST's addresses.

follow      links of a page without a query are followed, those with queries too; of a page with a query only its
            figures, and pages that nothing else has led to: views combine without end
REST        every GET of the OpenAPI document, its parameters filled in with the experiments and runs that there are
files       every figure as JSON and CSV, those of experiments as SVG; other forms once for each sort of address
"""

import json
import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from itertools import product
from typing import Any
from urllib.parse import quote, urlencode, urljoin, urlsplit

from httpx2 import Response
from starlette.testclient import TestClient

SEEDS = ("/", "/login", "/docs", "/deleted", "/metrics", "/healthz", "/nothing-is-here", "/experiments/0000000000")
CHOSEN = 3
"""Boxes that are ticked in a form that has many."""
SELDOM = re.compile(r"\.(png|pdf|html)$|^/(runs|v1)/.*\.svg$")
"""Files that cost a second each and differ as the figure's JSON does."""
STREAM = re.compile(r"(^|/)(events|stream)$")
ID = re.compile(r"\b[0-9a-z]{10}(-\d{4})?\b")
MOST = 5_000


@dataclass
class Links(HTMLParser):
    """The links of a page: addresses, figures, and forms that ask with GET."""

    links: list[str] = field(default_factory=list)
    figures: list[str] = field(default_factory=list)
    forms: list[tuple[str, list[tuple[str, str]]]] = field(default_factory=list)
    waits: bool = False
    """Whether a part of the page is still being counted."""
    _form: tuple[str, list[tuple[str, str, bool]]] | None = None
    _select: str | None = None

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        self.links += [attributes[name] for name in ("href", "src") if name in attributes]
        self.figures += [attributes["data-figure"]] if "data-figure" in attributes else []
        self.waits = self.waits or "data-poll" in attributes
        if tag == "form" and attributes.get("method", "get").lower() == "get":
            self._form = (attributes.get("action", ""), [])
        elif tag == "input" and self._form and "name" in attributes:
            box = attributes.get("type") in ("checkbox", "radio")
            self._form[1].append((attributes["name"], attributes.get("value", "on" if box else ""), not box))
        elif tag == "select":
            self._select = attributes.get("name")
        elif tag == "option" and self._form and self._select and "selected" in attributes:
            self._form[1].append((self._select, attributes.get("value", ""), True))

    def handle_endtag(self, tag: str) -> None:
        if tag == "select":
            self._select = None
        elif tag == "form" and self._form:
            action, fields = self._form
            boxes = [(name, value) for name, value, is_set in fields if not is_set][:CHOSEN]
            self.forms.append((action, [(name, value) for name, value, is_set in fields if is_set] + boxes))
            self._form = None


@dataclass
class Crawl:
    """A walk through an application."""

    client: TestClient
    answers: dict[str, Response] = field(default_factory=dict)
    """Address → what it answered."""
    waiting: set[str] = field(default_factory=set)
    """Pages that said that something is being counted."""
    _found: set[str] = field(default_factory=set)
    _seldom: set[str] = field(default_factory=set)
    _next: deque[str] = field(default_factory=deque)

    def walk(self) -> None:
        """Read everything."""
        for address in (*SEEDS, *rest_addresses(self.client)):
            self._meet(address)
        while self._next:
            assert len(self.answers) < MOST, "more addresses than anybody meant; do the views combine?"
            self._read(self._next.popleft())

    def _read(self, address: str) -> None:
        answer = self.client.get(address)
        self.answers[address] = answer
        if "location" in answer.headers:
            self._meet(urljoin(address, answer.headers["location"]))
        if not answer.headers.get("content-type", "").startswith("text/html") or ".html" in address:
            return
        page = Links()
        page.feed(answer.text)
        if page.waits:
            self.waiting.add(address)
        plain = "?" not in address
        forms = [f"{action}?{urlencode(fields)}" for action, fields in page.forms]
        for link in page.figures + (page.links + forms if plain else [url for url in page.links if "?" not in url]):
            target = urljoin(address, link)
            if plain or "/figures/" not in target or link in page.figures:
                self._meet(target)

    def _meet(self, target: str) -> None:
        """Read an address of ours once, later."""
        parts = urlsplit(target)
        address = parts.path + (f"?{parts.query}" if parts.query else "")
        if parts.netloc or parts.scheme or (STREAM.search(parts.path) and not parts.path.startswith("/v1/runs")):
            return
        if address in self._found:
            return
        if SELDOM.search(parts.path):
            sort = "/".join((*parts.path.split("/")[:3], parts.path.rpartition(".")[2]))
            sort = ID.sub("*", sort) if not sort.startswith("/studies/") else f"/studies/{parts.path[-4:]}"
            if sort in self._seldom:
                return
            self._seldom.add(sort)
        self._found.add(address)
        self._next.append(address)


def rest_addresses(client: TestClient) -> Iterator[str]:
    """The addresses of every GET operation, filled in with what there is."""
    document = client.get("/v1/openapi.json").json()
    experiments = [experiment["id"] for experiment in client.get("/v1/experiments").json()["items"]]
    studies = [study["name"] for study in client.get("/v1/studies").json()["items"]]
    runs = [
        run["id"]
        for experiment_id in experiments
        for run in client.get("/v1/runs", params={"experiment_id": experiment_id, "limit": 500}).json()["items"]
    ]
    known_values = {
        "experiment_id": experiments,
        "run_id": _sample(runs),
        "attempt": ["1"],
        "key_id": [],
        "webhook_id": [],
    }
    for path, operations in document["paths"].items():
        if "get" not in operations or _is_stream(operations["get"]):
            continue
        values = known_values | _stated(operations["get"]) | ({"name": studies} if "/studies/" in path else {})
        names = re.findall(r"{(\w+)}", path)
        for filled in product(*(values.get(name, ()) for name in names)):
            address = path.format(**dict(zip(names, (quote(str(value)) for value in filled), strict=True)))
            yield from _queried(address, experiments, runs)


def _queried(address: str, experiments: list[str], runs: list[str]) -> Iterator[str]:
    """The address with a query, where it means nothing without."""
    if address in ("/v1/fits", "/v1/profiles"):
        yield from (f"{address}?experiment={experiment_id}" for experiment_id in experiments)
    elif address == "/v1/points":
        yield f"{address}?run={runs[0]}&run={runs[1]}&metric=train_loss&buckets=8"
    elif address == "/v1/runs":
        yield from (f"{address}?experiment_id={experiment_id}" for experiment_id in experiments)
    yield address


def _stated(operation: dict[str, Any]) -> dict[str, list[str]]:
    """Path parameters whose values the document names."""
    schemas = {
        parameter["name"]: parameter["schema"]
        for parameter in operation.get("parameters", ())
        if parameter["in"] == "path"
    }
    return {name: _values(schema) for name, schema in schemas.items() if _values(schema)}


def _values(schema: dict[str, Any]) -> list[str]:
    if "const" in schema:
        return [schema["const"]]
    return list(
        schema.get("enum", [value for alternative in schema.get("anyOf", ()) for value in _values(alternative)])
    )


def _is_stream(operation: dict[str, Any]) -> bool:
    return "text/event-stream" in json.dumps(operation["responses"])


def _sample(runs: list[str]) -> list[str]:
    """The first runs of each experiment: the pages read all of them."""
    by_experiment: dict[str, list[str]] = {}
    for run in sorted(runs):
        by_experiment.setdefault(run[:10], []).append(run)
    return [run for several in by_experiment.values() for run in several[:CHOSEN]]
