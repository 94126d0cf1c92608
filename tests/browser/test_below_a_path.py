"""Pages below a path, as a proxy publishes them: figures, news, keys, forms and logins work there."""

from collections.abc import Iterator
from pathlib import Path
from socket import socket

import pytest

from tests.browser.expecting import expect
from tests.factories.playing import DEMO
from tests.factories.serving import Site, served

pytestmark = pytest.mark.browser

ROOT = "/user/ada/proxy/8321"


@pytest.fixture
def site(tmp_path: Path, listener: socket) -> Iterator[Site]:
    with served(tmp_path, listener, ROOT) as opened_site:
        yield opened_site


def test_an_experiment_is_watched_and_edited_below_the_path(eyes, site):
    experiment = site.experiments.submit(DEMO).experiment
    watched = eyes.look()
    page = watched.open(f"{site.url}/experiments/{experiment.id}", figures=5)
    expect(page.locator("#live")).to_have_text("Live")
    site.player.finish()
    expect(page.locator("#live")).to_have_text("Up to date")
    page.get_by_role("link", name="tokens", exact=True).click()
    expect(page).to_have_url(f"{site.url}/experiments/{experiment.id}?x=tokens")
    page.locator("#edit summary").click()
    page.get_by_label("Note, in Markdown").fill("a note")
    page.get_by_role("button", name="Save").click()
    expect(page.locator(".note-text")).to_have_text("a note")
    for keys, path in (("gq", "/queue"), ("gm", "/memory"), ("/", "/#search"), ("gn", "/new")):
        page.locator("h1").click()
        page.keyboard.type(keys)
        expect(page).to_have_url(site.url + path)
    page.get_by_label("Seeds", exact=True).fill("1, 2")
    expect(page.locator("#preview .chip")).to_have_text("valid")
    page.get_by_role("button", name="Submit").click()
    expect(page.locator(".title-row .chip")).to_have_text("queued")
    assert [request for request in watched.requests if not request.startswith(f"{site.url}/")] == []
    assert watched.complaints == []
