"""Scaling experiments over the real service, their runs played: laws, cells, predictions, pages, figures, reports."""

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from api.client.client import Client
from orchestrator.export.document import ExperimentDocument
from orchestrator.kinds.scaling import ScalingSpec
from tests.factories.scaling import scaling_spec
from tests.factories.stores import result
from tests.integration.api_service import Service, end_all
from worker.catalog import presets
from worker.catalog.presets import parameter_count
from worker.records.result import Result, Verdict
from worker.spec.run import RunSpec

HOSTILE = "<script>alert(1)</script> =1+1 $x$ & _y_"


def play(service: Service, *, diverged: bool = False, exponent: float = 0.08) -> None:
    """End every run that waits; losses fall as N^-0.08, AdaPM's are 1 % lower, and states are as large as they are."""

    def played(spec: RunSpec) -> Result:
        parameters = parameter_count(presets.preset(spec.workload.model))
        better = 0.99 if spec.optimizer.name == "adapm" else 1.0
        loss = 9 * parameters**-exponent * better * (1 + abs(spec.optimizer.lr - 0.004) + 1e-3 * spec.seed)
        ended = result(final_val_loss=None, verdict=Verdict.DIVERGED) if diverged else result(final_val_loss=loss)
        sizes = {"parameters": parameters, "tokens": spec.workload.tokens(), "parameter_bytes": 4 * parameters}
        sizes["optimizer_state_bytes"] = (8 if spec.optimizer.name == "adamw" else 5) * parameters
        return ended.model_copy(update=sizes)

    end_all(service, played)


@pytest.fixture(scope="module")
def client(service: Service) -> Iterator[Client]:
    with Client(service.url, timeout_seconds=300) as rest_client:
        yield rest_client


@pytest.fixture(scope="module")
def spec() -> ScalingSpec:
    sizes = [{"model": f"gpt2-{name}"} for name in ("nano", "micro", "tiny", "mini")]
    return scaling_spec(name=HOSTILE, sizes=sizes, seeds=[1, 2, 3])


@pytest.fixture(scope="module")
def id(service: Service, client: Client, spec: ScalingSpec) -> str:
    """A finished scaling experiment with a hostile name."""
    submitted = client.submit(spec).experiment
    assert submitted.counts.total == 4 * 2 * 2 * 3
    play(service)
    return submitted.id


def get(service: Service, path: str) -> httpx2.Response:
    return httpx2.get(f"{service.url}{path}", trust_env=False, verify=False, timeout=300)


def test_every_size_has_its_own_leaderboard(service: Service, client: Client, id: str, cli) -> None:
    cells = client.cells(id)
    assert [cell.key for cell in cells] == [f"gpt2-{size}-40" for size in ("nano", "micro", "tiny", "mini")]
    small = client.compare(id, cells[0].key)
    assert small.name.endswith("gpt2-nano · 10,240 tokens")
    assert (small.rows[0].candidate, small.rows[0].edge_of_grid) == ("adapm", True)
    assert client.compare(id).name.endswith("gpt2-mini · 10,240 tokens")  # the largest, unless told
    assert small.rows[0].val_loss == next(row for row in cells[0].comparison.rows if row.candidate == "adapm").val_loss
    table = cli("compare", id, "--cell", cells[0].key, "--format", "csv").stdout
    assert next(csv.DictReader(io.StringIO(table)))["candidate"] == "adapm"
    assert "gpt2-nano-40" in get(service, f"/v1/experiments/{id}/comparison?cell=x").json()["detail"]


def test_the_pages_show_the_law_and_each_cell(service: Service, id: str) -> None:
    page = get(service, f"/experiments/{id}").text
    assert "AdamW: alpha = 0.08" in page
    assert f'href="/experiments/{id}?cell=gpt2-tiny-40"' in page
    assert "<script>alert" not in page and "&lt;script&gt;alert" in page
    cell = get(service, f"/experiments/{id}?cell=gpt2-tiny-40").text
    assert f"/experiments/{id}/figures/curves.json?cell=gpt2-tiny-40" in cell
    for path in (f"/fits?experiments={id}&form=n0&predict=1e9", f"/profiles?experiments={id}", "/"):
        answer = get(service, path)
        assert answer.status_code == 200
        assert "<script>alert" not in answer.text


def test_where_no_law_is_found_nothing_is_predicted(service: Service, client: Client, cli, tmp_path: Path) -> None:
    """Losses that no size lowers: every place that tells of laws says so and why, and none predicts."""
    flat = client.submit(scaling_spec(name="flat", seeds=[1, 2, 3])).experiment.id
    play(service, exponent=0.0)
    report = client.fit([flat], predict=["gpt2-124m", 10**9])
    assert all(fit.no_law for fit in report.fits)
    assert all((fit.predictions, fit.curves) == ((), ()) for fit in report.fits)
    written = cli("export", flat, "--format", "report", "-o", tmp_path)
    assert written.exit_code == 0
    page = get(service, f"/experiments/{flat}").text
    for text in (page, (tmp_path / f"{flat}-report.html").read_text(), cli("fit", flat, "--predict", "1e9").stdout):
        assert "No law found" in text and "Predictions" not in text


def test_the_report_is_one_file_that_lets_nothing_in(id: str, cli, tmp_path: Path) -> None:
    written = cli("export", id, "--format", "report", "-o", tmp_path)
    assert written.exit_code == 0
    text = (tmp_path / f"{id}-report.html").read_text()
    assert "default-src 'none'" in text
    assert "<script" not in text and "http-equiv" in text and 'src="http' not in text
    for part in ("Method", "Scaling law", "Predictions", "Provenance", "approach 3", "2510.09103", "Runs"):
        assert part in text
    assert "data:image/svg+xml;base64," in text
    assert "NaN" not in text and "None" not in text
    assert cli("export", id, "--format", "report", "-o", tmp_path / f"{id}-report.html").exit_code == 1


def test_the_document_has_provenance_answer_and_runs(client: Client, id: str, cli, tmp_path: Path) -> None:
    assert cli("export", id, "--format", "json", "--out", tmp_path).exit_code == 0
    text = (tmp_path / f"{id}.json").read_text()
    document = ExperimentDocument.model_validate(json.loads(text, parse_constant=pytest.fail))
    assert document.provenance.spec_hash == client.experiment(id).spec_hash
    assert (len(document.cells), len(document.runs), document.provenance.data_hashes) == (4, 48, ("data",))
    assert document.fit is not None
    assert "@misc{zhang-2510.09103," in (tmp_path / f"{id}.bib").read_text()
    assert cli("export", id, "--figures", "svg", "--out", tmp_path).exit_code == 0
    assert {figure.name for figure in tmp_path.glob("*.svg")} == {f"{id}-law.svg", f"{id}-residuals.svg"}


def test_an_experiment_without_a_trained_model_is_sentences_everywhere(service: Service, client: Client, cli) -> None:
    """Before the first result, and when every run has diverged: no NaN, no stack trace."""
    id = client.submit(scaling_spec(name="all diverged")).experiment.id
    for _ in range(2):
        report = client.fit([id], predict=["1e9"])
        assert [fit.verdict.partition(":")[0] for fit in report.fits] == ["Not fitted", "Not fitted"]
        assert cli("fit", id).exit_code == 0
        for path in (
            f"/experiments/{id}",
            f"/experiments/{id}/figures/law.json",
            f"/v1/experiments/{id}/figures/law.svg",
        ):
            answer = get(service, path)
            assert answer.status_code == 200
            assert "NaN" not in answer.text
        assert get(service, f"/v1/experiments/{id}/report").status_code == 200
        play(service, diverged=True)


def test_a_comparison_has_no_cells_and_no_law(service: Service, client: Client, spec: ScalingSpec) -> None:
    id = client.submit(spec.comparison(spec.cells()[0])).experiment.id
    play(service)
    assert get(service, f"/v1/experiments/{id}/cells").status_code == 409
    assert get(service, f"/v1/experiments/{id}/comparison?cell=x").status_code == 404
    assert "curves" in get(service, f"/v1/experiments/{id}/figures/law.svg").json()["detail"]
    text = get(service, f"/v1/experiments/{id}/report").text
    assert "data:image/svg+xml;base64," in text and "Tuning" in text
