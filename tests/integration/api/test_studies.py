"""Studies over REST and as pages, on a service without results, with some, and with a finished experiment."""

from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from api.client.client import Client, ClientError
from orchestrator.studies.claim_file import ClaimDesign, read_claim, register_claim
from orchestrator.studies.evidence import Evidence, StudyScale
from orchestrator.studies.findings import ClaimVerdict, Finding
from orchestrator.studies.registry import CLAIMS, names, study
from orchestrator.studies.results import PUBLISHED, evidence_path, read_evidence, write_evidence
from tests.factories.stores import claim, result
from tests.integration.api_service import Service, serving

NOTHING = Finding(
    answer=ClaimVerdict.MISSING,
    measured=ClaimVerdict.MISSING,
    sentence="not run yet",
    measures=(),
    notes=(),
    machines=(),
)


def look(url: str) -> httpx2.Response:
    """A page, however slow the machine is."""
    return httpx2.get(url, timeout=120)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with serving(tmp_path) as running:
        yield running


def test_every_study_is_told_with_specifications_that_can_be_submitted(client: Client) -> None:
    """The list and each study agree; an experiment that is submitted under its key is found."""
    listed = client.studies()
    assert tuple(each.name for each in listed) == names()
    one = client.study("gradient-sparsity")
    assert one == next(each for each in listed if each.name == "gradient-sparsity")
    (planned,) = one.scale(StudyScale.TINY).experiments
    assert planned.experiment_id is None
    made = client.submit(planned.spec, key=planned.key).experiment
    (found,) = client.study("gradient-sparsity").scale(StudyScale.TINY).experiments
    assert (found.experiment_id, found.done) == (made.id, False)
    again = client.submit(planned.spec, key=f"{planned.key}-2").experiment
    (newest,) = client.study("momentum-spectrum").scale(StudyScale.TINY).experiments
    assert newest.experiment_id == again.id, "the newest one counts, for every study that shares it"


def test_a_claim_that_is_registered_is_told_like_every_study(client: Client, service: Service, tmp_path: Path) -> None:
    """Over REST and as a page, with the design that was written down; its experiment is found by its key."""
    mine = read_claim(CLAIMS / "lion.yaml").model_copy(update={"name": "lion-of-mine"})
    register_claim(tmp_path / "studies", mine.replace_design(StudyScale.TINY, ClaimDesign(seeds=7)))
    assert tuple(each.name for each in client.studies()) == (*names(), "lion-of-mine")
    (planned,) = client.study("lion-of-mine").scale(StudyScale.TINY).experiments
    assert planned.spec.seeds == (1, 2, 3, 4, 5, 6, 7)
    made = client.submit(planned.spec, key=planned.key).experiment
    page = look(f"{service.url}/studies/lion-of-mine").text
    assert mine.source in page and f"/experiments/{made.id}" in page


def test_an_unknown_study_is_nowhere(client: Client, service: Service) -> None:
    with pytest.raises(ClientError, match="there is no study 'nothing'; there are memory-table") as refused:
        client.study("nothing")
    assert refused.value.status == 404
    assert look(f"{service.url}/studies/nothing").status_code == 404
    assert look(f"{service.url}/studies/nothing/figures/tiny.json").status_code == 404


def test_pages_show_claim_verdict_and_figures(service: Service, tmp_path: Path) -> None:
    """An own result that says nothing yet hides no published one, from which it is told apart."""
    computed = {"llama-340m/adamw/float32": 1.0}
    write_evidence(tmp_path / "studies", Evidence(study="memory-table", scale=StudyScale.TINY, computed=computed))
    listing = look(f"{service.url}/studies")
    assert listing.status_code == 200
    assert all(f'href="/studies/{name}"' in listing.text for name in names())
    page = look(f"{service.url}/studies/memory-table").text.replace("\N{NO-BREAK SPACE}", " ")
    assert "AdaPM-mini 0.12 (−96 %)" in page
    assert "published result" in page and "Deviates from the published result" in page
    figure = look(f"{service.url}/studies/memory-table/figures/tiny.json?theme=dark").json()
    assert set(figure) == {"data", "layout"}


def test_the_published_answer_stays_while_an_own_run_is_under_way(client: Client, service: Service) -> None:
    scale = client.study("loss-curves").scale(StudyScale.TINY)
    planned = scale.experiments[0]
    before = look(f"{service.url}/studies/loss-curves").text
    published = before[before.index('class="lede answer"') : before.index("</p>", before.index('class="lede answer"'))]
    assert "No result yet" not in published and "A local run is still under way" not in before
    made = client.submit(planned.spec, key=planned.key).experiment
    page = look(f"{service.url}/studies/loss-curves").text
    answer = page[page.index('class="lede answer"') : page.index("The claim")]
    assert answer.startswith(published)
    assert "A local run is still under way; the answer above is the published result" in answer
    assert f'href="/experiments/{made.id}"' in answer
    client.cancel_experiment(made.id)
    assert "A local run is still under way" not in look(f"{service.url}/studies/loss-curves").text


def test_withdrawn_results_say_so_and_why(
    client: Client, service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the list, on the study's own page and over REST: the reason, and no figure of it."""
    reason = "The baseline's rate was not tuned, so that the differences flatter the others."
    for name in names():
        if (stored := read_evidence(PUBLISHED, name, StudyScale.TINY)) is not None:
            why = reason if name == "loss-curves" else stored.withdrawn
            write_evidence(tmp_path, stored.model_copy(update={"withdrawn": why}))
    for module in ("results", "reports"):
        monkeypatch.setattr(f"orchestrator.studies.{module}.PUBLISHED", tmp_path)
    found = {one.name: one.scale(StudyScale.TINY).published for one in client.studies()}
    withdrawn = {name for name, each in found.items() if each and each.answer is ClaimVerdict.WITHDRAWN}
    assert "loss-curves" in withdrawn and "adapm-mini" not in withdrawn
    published = found["loss-curves"]
    assert published is not None and not published.measures
    page = look(f"{service.url}/studies/loss-curves").text
    for text in (look(f"{service.url}/studies").text, page):
        assert reason.split(",")[0].replace("'", "&#39;") in text
    assert "study-figure" not in page


def test_what_says_nothing_is_called_no_result(
    client: Client, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Published for a plan that has since changed, and nothing of our own."""
    monkeypatch.setattr("orchestrator.studies.results._finding", lambda *_: NOTHING)
    page = look(f"{service.url}/studies/loss-curves").text
    assert "published for another plan" in page and "published result" not in page
    listing = look(f"{service.url}/studies").text
    assert "under way" not in listing and "no result yet" in listing


def test_a_broken_file_is_named_and_spoils_no_other_study(service: Service, tmp_path: Path) -> None:
    (tmp_path / "studies").mkdir()
    evidence_path(tmp_path / "studies", "memory-table", StudyScale.TINY).write_text("{")
    answer = look(f"{service.url}/v1/studies/memory-table")
    assert answer.status_code == 200
    own = answer.json()["scales"][0]["own"]
    assert own["answer"] == "no result yet"
    assert own["sentence"].startswith("the file memory-table.tiny.json is no result of a study")
    assert look(f"{service.url}/studies").status_code == 200


def test_a_finished_experiment_is_judged_without_a_file(service: Service, client: Client) -> None:
    """Whoever ran it: the verdict is made from the stored results, and is renewed with them."""
    (part,) = study("gradient-sparsity").plans[StudyScale.TINY].parts
    service.experiments.submit(part.spec, part.key())
    finding = client.study("gradient-sparsity").scale(StudyScale.TINY).own
    assert finding is not None
    assert finding.sentence == "No verdict: runs of GPT-2 have not ended."
    for lease in claim(service.queue, cpus=8, limit=8):
        service.attempts.hello(lease.run_id, lease.attempt, lease.token)
        service.attempts.finish(lease.run_id, lease.attempt, lease.token, result())
    ended = client.study("gradient-sparsity").scale(StudyScale.TINY)
    assert ended.own is not None
    assert ended.own.answer is ClaimVerdict.MISSING
    assert ended.own.sentence == "No verdict: no run that ended well was observed."
    assert "processor (cpu)" in ended.own.machines[0]
