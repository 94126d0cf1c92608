"""Text that somebody stored is shown as text, on every page and in every figure: a corpus of what would run elsewhere.

It goes in as names, labels, notes, reasons and keys' labels do, and every answer is read as a browser would read it.
"""

import json
from collections.abc import Iterator
from html.parser import HTMLParser

import pytest
from starlette.testclient import TestClient

from api.app import create_app
from dashboards.figures.registry import COMPARISON_FIGURES
from orchestrator.annotations import AnnotationChange
from orchestrator.jobs import RunAction
from orchestrator.keys import KeyRequest, Scope
from orchestrator.kinds.comparison import Candidate
from tests.factories.playing import DEMO
from tests.factories.serving import open_services
from worker.reporting.log import log_path
from worker.spec.run import Samples

CORPUS = (
    "<script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    "</title><svg onload=alert(1)>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "<a href=javascript:alert(1)>x</a>",
    "{{7*7}}{% raw %}${7*7}",
    "<b>&lt;i&gt;&amp;",
    "--><iframe src=//evil.example>",
    "=cmd|' /C calc'!A0",
)
"""Each at most 60 characters, as labels are."""
TAGS = frozenset(
    {"script", "link", "img", "iframe", "object", "embed", "base", "meta", "svg", "form", "input", "style"}
)
ADDRESSES = frozenset({"src", "href", "action", "formaction", "xlink:href"})


class Reader(HTMLParser):
    """The parts of a page that a browser acts on: tags that load or run something, handlers, addresses; and the
    text."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.handlers: list[str] = []
        self.addresses: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            self.text.append(value or "")
            if name.startswith("on"):
                self.handlers.append(name)
            if name in ADDRESSES:
                self.addresses.append(value or "")

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def read(html: str) -> Reader:
    reader = Reader()
    reader.feed(html)
    return reader


def played(names: tuple[str, ...], folder) -> Iterator[tuple[TestClient, str, dict[str, str]]]:
    """A finished experiment whose name, labels and note are these, and a deleted clone of it; its id, and the headers
    of a viewer named so."""
    with open_services(folder) as (services, player):
        candidates = tuple(
            Candidate(optimizer="adamw", learning_rates=(2e-3,), label=label) for label in (names or ("plain",))
        )
        name = " ".join(names)[:120].strip() or "plain"
        samples = Samples(prompts=(names or ("plain",))[:8])
        evaluation = DEMO.workload.evaluation.model_copy(update={"samples": samples})
        workload = DEMO.workload.model_copy(update={"evaluation": evaluation})
        update = {"candidates": candidates, "name": name, "seeds": (1,), "baseline": None, "workload": workload}
        spec = DEMO.model_copy(update=update)
        experiment_id = services.experiments.submit(spec).experiment.id
        player.finish()
        log = log_path(folder / "runs" / f"{experiment_id}-0003", 1)
        log.parent.mkdir(parents=True)
        log.write_text("\n".join(names))
        label = (names[0] if names else "plain")[:80]
        key = services.keyring.create(KeyRequest(label=label, scope=Scope.ADMIN))
        annotation = AnnotationChange(labels=names, note="\n".join(names))
        services.experiments.annotate(experiment_id, annotation, by=key.key.id)
        clone = services.experiments.clone(experiment_id, name).experiment.id
        services.experiments.annotate(clone, annotation)
        services.experiments.apply(clone, RunAction.CANCEL)
        services.experiments.delete(clone)
        cookie = {"Cookie": f"adapm_bench_session={services.keyring.log_in(key.key.id)}"}
        with TestClient(create_app(services, stopping=lambda: True), base_url="http://127.0.0.1") as client:
            yield client, experiment_id, cookie


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    yield from played(CORPUS, tmp_path_factory.mktemp("hostile"))


@pytest.fixture(scope="module")
def harmless(tmp_path_factory):
    """The same pages with names that mean nothing anywhere."""
    names = tuple(f"candidate {number}" for number in range(len(CORPUS)))
    yield from played(names, tmp_path_factory.mktemp("harmless"))


PAGES = (
    "/", "/experiments/{id}", "/runs/{id}-0003", "/runs/{id}-0005", "/login", "/docs", "/experiments/{script}",
    "/experiments/{id}/edit", "/experiments/{id}/clone", "/experiments/{id}/delete", "/deleted",
    "/runs/{id}-0003?log={script}&level=error",
)  # fmt: skip


@pytest.mark.parametrize("page", PAGES)
def test_stored_text_adds_nothing_to_a_page_that_a_browser_would_act_on(hostile, harmless, page: str):
    pages = []
    for client, experiment_id, cookie in (hostile, harmless):
        path = page.replace("{id}", experiment_id).replace("{script}", "%3Csvg onload=alert(1)%3E")
        answer = client.get(path, headers=cookie | {"Accept": "text/html"})
        assert answer.headers["content-type"].startswith("text/html")
        pages.append(read(answer.text))
    actual, expected = pages
    assert [tag for tag in actual.tags if tag in TAGS] == [tag for tag in expected.tags if tag in TAGS]
    assert actual.handlers == expected.handlers == []
    assert not [address for address in actual.addresses if not address.startswith(("/", "#", "?"))]
    assert "49" not in "".join(text for text in actual.text if "7*7" in text)


@pytest.mark.parametrize("page", ["/experiments/{id}", "/experiments/{id}/edit", "/runs/{id}-0003", "/"])
def test_the_corpus_is_shown_as_it_was_written(hostile, page: str):
    client, experiment_id, cookie = hostile
    text = " ".join(read(client.get(page.replace("{id}", experiment_id), headers=cookie).text).text)
    assert [word for word in CORPUS if word not in text] == []


@pytest.mark.parametrize("word", CORPUS)
def test_a_list_that_a_link_narrows_shows_the_label_and_acts_on_nothing(hostile, harmless, word: str):
    """Whoever sends a link chooses the label in it, whether any experiment has it or none."""
    (client, experiment_id, cookie), (other_client, _, other_cookie) = hostile, harmless
    known_page = read(client.get("/", params={"label": word}, headers=cookie).text)
    unknown = read(other_client.get("/", params={"label": word}, headers=other_cookie).text)
    assert f"/experiments/{experiment_id}" in known_page.addresses
    for page in (known_page, unknown):
        assert word in " ".join(page.text)
        assert page.handlers == []
        assert not [address for address in page.addresses if not address.startswith(("/", "#", "?"))]
    assert not {"img", "iframe"} & {*known_page.tags, *unknown.tags}
    assert known_page.tags.count("script") == unknown.tags.count("script")


def strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from strings(part)
    elif isinstance(value, list):
        for part in value:
            yield from strings(part)


PSEUDO_HTML = frozenset({"b", "br", "i", "sub", "sup", "em", "span", "extra"})
"""The tags that Plotly draws; nothing else that looks like a tag may reach it."""


@pytest.mark.parametrize("name", [*(entry.name for entry in COMPARISON_FIGURES), "series"])
def test_stored_text_is_no_markup_in_a_figure(hostile, name: str):
    client, experiment_id, cookie = hostile
    address = f"/runs/{experiment_id}-0001" if name == "series" else f"/experiments/{experiment_id}"
    answer = client.get(f"{address}/figures/{name}.json", headers=cookie)
    assert answer.status_code == 200
    figure = json.loads(answer.text)
    tags = {tag for text in strings(figure) for tag in read(text).tags}
    assert tags <= PSEUDO_HTML
    assert not [text for text in strings(figure) if "javascript:" in text.lower() and "<a" in text.lower()]


def test_stored_text_is_no_formula_in_a_spreadsheet(hostile):
    client, experiment_id, cookie = hostile
    for path in (f"/experiments/{experiment_id}/table.csv", f"/v1/experiments/{experiment_id}/exports/results.csv"):
        answer = client.get(path, headers=cookie)
        assert answer.status_code == 200
        cells = [cell.strip('"') for line in answer.text.splitlines() for cell in line.split(",")]
        assert not [cell for cell in cells if cell.startswith(("=cmd", "@", "\t", "\r"))]
        assert "attachment" in answer.headers["content-disposition"]


@pytest.mark.parametrize("page", [*PAGES, "/v1/experiments", "/nothing", "/static/app.css", "/metrics"])
def test_every_answer_says_what_a_browser_may_do_with_it(harmless, page: str):
    client, experiment_id, cookie = harmless
    headers = client.get(page.replace("{id}", experiment_id), headers=cookie).headers
    policy = headers["Content-Security-Policy"]
    for part in ("default-src 'self'", "script-src 'self'", "object-src 'none'", "base-uri 'none'"):
        assert f"{part};" in policy
    assert "frame-ancestors 'none'" in policy and "form-action 'self'" in policy
    assert "unsafe" not in policy
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["Referrer-Policy"] == "same-origin"
    assert headers["Cross-Origin-Opener-Policy"] == "same-origin"
