"""The forms of labels, notes, clones and deletions: what they take, what they give back, what they never lose."""

import pytest
from fastapi.testclient import TestClient

from dashboards.text.formats import moment
from orchestrator.annotations import AnnotationChange
from orchestrator.jobs import RunAction
from tests.factories.playing import DEMO


@pytest.fixture
def ended(services) -> str:
    """The id of an experiment that was cancelled before it began."""
    experiment_id = services.experiments.submit(DEMO).experiment.id
    services.experiments.apply(experiment_id, RunAction.CANCEL)
    return str(experiment_id)


def test_a_form_that_cannot_be_taken_comes_back_as_it_was_written(client: TestClient, services, ended) -> None:
    services.experiments.annotate(ended, AnnotationChange(labels=("theirs",)))
    sent = {"labels": "mine, too", "note": "an hour of words", "revision": "0"}
    overtaken = client.post(f"/experiments/{ended}/edit", data=sent)
    assert overtaken.status_code == 412
    assert "an hour of words" in overtaken.text and 'value="mine, too"' in overtaken.text
    assert "theirs" in overtaken.text and 'name="revision" value="1"' in overtaken.text
    wrong = client.post(f"/experiments/{ended}/edit", data=sent | {"labels": "x" * 61, "revision": "1"})
    assert wrong.status_code == 422
    assert "an hour of words" in wrong.text and "at most" not in wrong.text and "1 to 60" in wrong.text
    assert services.experiments.get(ended).labels == ("theirs",)
    response = client.post(f"/experiments/{ended}/edit", data=sent | {"revision": "1"}, follow_redirects=False)
    assert (response.status_code, response.headers["Location"]) == (303, f"/experiments/{ended}")
    assert services.experiments.get(ended).labels == ("mine", "too")


def test_a_clone_page_sent_twice_makes_one_clone(client: TestClient, services, ended) -> None:
    page = client.get(f"/experiments/{ended}/clone").text
    assert f'value="{DEMO.name}"' in page
    sent = {"name": "again", "nonce": "0123abcd"}
    places = {
        client.post(f"/experiments/{ended}/clone", data=sent, follow_redirects=False).headers["Location"]
        for _ in range(2)
    }
    assert len(places) == 1
    assert services.experiments.get(places.pop().rpartition("/")[2]).cloned_from == ended
    refused = client.post(f"/experiments/{ended}/clone", data={"name": "x" * 121})
    assert refused.status_code == 409


def test_what_has_not_ended_has_no_button_to_delete_it(client: TestClient, services) -> None:
    active = services.experiments.submit(DEMO).experiment.id
    assert f'href="/experiments/{active}/delete"' not in client.get(f"/experiments/{active}").text
    page = client.get(f"/experiments/{active}/delete").text
    assert 'class="button danger"' not in page
    refused = client.post(f"/experiments/{active}/delete")
    assert (refused.status_code, "cancel" in refused.text) == (409, True)


def test_a_deleted_experiment_is_offered_back_wherever_it_is_looked_for(client: TestClient, services, ended) -> None:
    undo = f'action="/experiments/{ended}/restore"'
    assert "/deleted" not in client.get("/").text
    shown = client.post(f"/experiments/{ended}/delete")
    assert (shown.url.path, undo in shown.text) == ("/deleted", True)
    home = client.get("/").text
    assert undo not in home and 'href="/deleted"' in home
    for page in ("", "/edit", "/clone", "/delete"):
        lost = client.get(f"/experiments/{ended}{page}")
        assert (lost.status_code, undo in lost.text) == (404, True)
    for path in (f"/runs/{ended}-0000", f"/fits?experiments={ended}", f"/profiles?experiments={ended}"):
        lost = client.get(path)
        assert (lost.status_code, undo in lost.text, 'href="/deleted"' in lost.text) == (404, True, True)
        assert 'data-label="Can be restored until"' in lost.text
        assert moment(services.experiments.get_any(ended, deleted_too=True).undo_until) in lost.text
    compared = client.get(f"/compare?runs={ended}-0000,{ended}-9999").text
    assert moment(services.experiments.get_any(ended, deleted_too=True).undo_until) in compared
    assert f"<bdi>{DEMO.name}</bdi>" in compared and 'href="/deleted"' in compared
    assert f"<bdi>{ended}-9999</bdi>" in compared
    restored = client.post(f"/experiments/{ended}/restore")
    assert (restored.status_code, restored.url.path) == (200, f"/experiments/{ended}")
    assert undo not in client.get("/deleted").text


def test_after_its_time_nothing_is_offered(client: TestClient, services, ended) -> None:
    services.experiments.undo_days = 0.0
    services.experiments.delete(ended)
    late = client.post(f"/experiments/{ended}/restore")
    assert (late.status_code, "Too late" in late.text) == (409, True)


def test_a_search_keeps_its_labels(client: TestClient, services, ended) -> None:
    services.experiments.annotate(ended, AnnotationChange(labels=("paper", "a b")))
    page = client.get("/", params={"label": ["paper", "a b"], "q": "adapm", "state": "done"}).text
    assert f'href="/experiments/{ended}"' in page
    assert 'name="label" value="a b"' in page
    assert 'href="/?q=adapm&amp;state=active&amp;label=a+b&amp;label=paper"' in page
    assert 'href="/?q=adapm&amp;state=done&amp;label=paper"' in page
    assert "No matches" in client.get("/?label=nothing").text
    assert f'href="/experiments/{ended}"' in client.get("/?label=%20&label=").text
    assert f'href="/experiments/{ended}"' in client.get("/?q=paper").text
