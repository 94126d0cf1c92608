"""Studies over REST and as pages, on a service without results, with some, and with a finished experiment."""

from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from api.client.client import Client
from orchestrator.studies.claims import ClaimVerdict
from orchestrator.studies.registry import names, register, study
from orchestrator.studies.result import StudyResult, result_path, write_result
from orchestrator.studies.study import StudyScale
from tests.factories.stores import result
from tests.integration.api_service import Service, end_all, serving

STATES = {"llama-340m/adamw/float32": 1e9, "llama-340m/adapm/float32": 9e8}
"""Bytes that no machine would count: AdaPM keeps nine tenths of AdamW's state."""


def look(url: str) -> httpx2.Response:
    """A page, however slow the machine is."""
    return httpx2.get(url, timeout=120, verify=False)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with serving(tmp_path) as running:
        yield running


def test_every_study_is_told_with_specifications_that_can_be_submitted(client: Client) -> None:
    """The list and each study agree; an experiment that is submitted under its key is found."""
    listed = client.studies()
    assert tuple(study.name for study in listed) == names()
    sparsity_study = client.study("gradient-sparsity")
    assert sparsity_study == next(study for study in listed if study.name == "gradient-sparsity")
    (planned,) = sparsity_study.scale(StudyScale.TINY).experiments
    assert planned.experiment_id is None
    experiment = client.submit(planned.spec, key=planned.key).experiment
    (entry,) = client.study("gradient-sparsity").scale(StudyScale.TINY).experiments
    assert (entry.experiment_id, entry.done) == (experiment.id, False)
    newer_experiment = client.submit(planned.spec, key=f"{planned.key}-2").experiment
    (newest,) = client.study("momentum-spectrum").scale(StudyScale.TINY).experiments
    assert newest.experiment_id == newer_experiment.id, "the newest one counts, for every study that shares it"


def test_a_study_of_ones_own_is_told_like_every_other(client: Client, service: Service, tmp_path: Path) -> None:
    """Over REST and as a page; its experiment is found by its key."""
    own_study = study("lion").model_copy(update={"name": "lion-of-mine", "source": "a talk"})
    register(tmp_path / "studies", own_study)
    assert tuple(study.name for study in client.studies()) == (*names(), "lion-of-mine")
    (planned,) = client.study("lion-of-mine").scale(StudyScale.TINY).experiments
    assert planned.spec.seeds == tuple(range(1, 11))
    experiment = client.submit(planned.spec, key=planned.key).experiment
    page = look(f"{service.url}/studies/lion-of-mine").text
    assert own_study.source in page and f"/experiments/{experiment.id}" in page


def test_pages_show_claim_and_verdict(service: Service, tmp_path: Path) -> None:
    """An own result stands before the published one, and says where it lies outside of it."""
    result = StudyResult(study="memory-table", scale=StudyScale.TINY, computed=STATES)
    write_result(result_path(tmp_path / "studies", "memory-table", StudyScale.TINY), result)
    listing = look(f"{service.url}/studies")
    assert listing.status_code == 200
    assert all(f'href="/studies/{name}"' in listing.text for name in names())
    page = look(f"{service.url}/studies/memory-table").text.replace("\N{NO-BREAK SPACE}", " ")
    assert "0.12 (−96 %)" in page
    assert "own result" in page and "Deviates from" in page
    assert "contradicted" in page


def test_the_published_answer_stays_while_an_own_run_is_under_way(client: Client, service: Service) -> None:
    scale = client.study("momentum-spectrum").scale(StudyScale.TINY)
    planned = scale.experiments[0]
    html = look(f"{service.url}/studies/momentum-spectrum").text
    published = html[html.index('class="lede answer"') : html.index("</p>", html.index('class="lede answer"'))]
    assert "No result yet" not in published and "local run is still" not in html
    experiment = client.submit(planned.spec, key=planned.key).experiment
    page = look(f"{service.url}/studies/momentum-spectrum").text
    answer = page[page.index('class="lede answer"') : page.index("The claim")]
    assert answer.startswith(published)
    assert "local run is still" in answer
    assert f'href="/experiments/{experiment.id}"' in answer
    client.cancel_experiment(experiment.id)
    assert "local run is still" not in look(f"{service.url}/studies/momentum-spectrum").text


def test_a_broken_file_is_named_and_spoils_no_other_study(service: Service, tmp_path: Path) -> None:
    path = result_path(tmp_path / "studies", "memory-table", StudyScale.TINY)
    path.parent.mkdir(parents=True)
    path.write_text("{")
    answer = look(f"{service.url}/v1/studies/memory-table")
    assert answer.status_code == 200
    scale_result = answer.json()["scales"][0]["own"]
    assert scale_result["answer"] == "no result yet"
    assert "memory-table/result.tiny.json" in scale_result["sentence"]
    assert look(f"{service.url}/studies").status_code == 200


def test_a_finished_experiment_is_judged_without_a_file(service: Service, client: Client) -> None:
    """Whoever ran it: the verdict is made from the stored results, and is renewed with them."""
    (planned,) = client.study("gradient-sparsity").scale(StudyScale.TINY).experiments
    service.experiments.submit(planned.spec, planned.key)
    finding = client.study("gradient-sparsity").scale(StudyScale.TINY).own
    assert finding is not None
    assert "GPT-2" in finding.sentence
    end_all(service, lambda _: result())
    ended = client.study("gradient-sparsity").scale(StudyScale.TINY)
    assert ended.own is not None
    assert ended.own.answer is ClaimVerdict.MISSING
    assert "claimed" in ended.own.sentence
    assert "processor (cpu)" in ended.own.machines[0]
