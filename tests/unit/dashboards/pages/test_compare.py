"""External runs beside measured ones: both are found, drawn and listed, each says what it is, and nothing is mixed."""

import pytest
from fastapi.testclient import TestClient

from orchestrator.external_runs import ExternalState, LinesBatch, SpoolLine
from orchestrator.services.composition import Services
from tests.factories.external_runs import BEGAN, batch, header

STEPS = (0, 4, 8)


@pytest.fixture
def told(services: Services) -> str:
    """The key of an external run that told losses and tokens, whose candidate is named as one that was measured."""
    config = {"batch": 512, "note": "<b>"}
    run = header("adamw", lr=0.002, seed=1, workload="a line", config=config)
    lines = [
        SpoolLine(at=BEGAN + step, step=step, metrics={"val_loss": 3.0 - step / 8, "tokens": 100.0 * step, "gap": step})
        for step in STEPS
    ]
    lines.append(SpoolLine(at=BEGAN + 9, step=6, metrics={"train_loss": 2.0}))
    lines.append(SpoolLine(at=BEGAN + 10, state=ExternalState.FINISHED))
    services.external_runs.append("mine", LinesBatch(run=run, part="first", lines=tuple(lines)))
    return "mine"


@pytest.fixture
def measured(services: Services, finished: str) -> str:
    """The id of a run that was measured, of the candidate of the same name."""
    runs = services.runs.page(experiment_id=finished)
    return next(run.id for run in runs if run.candidate == "adamw" and run.result and run.result.final_val_loss)


def test_an_external_run_stands_beside_a_measured_one_and_says_so(client: TestClient, measured: str, told: str) -> None:
    page = client.get(f"/compare?runs={measured},{told}").text
    legend, results = page.partition('id="results"')[::2]
    assert client.get(f"/runs/{told}", follow_redirects=False).headers["location"] in page
    for part in (legend.partition('id="compare-head"')[2], results.partition('id="differences"')[0]):
        assert part.count(">logged</span>") == 1, "one of the two"
    assert 'href="/experiments/' in page
    row = results.partition(">validation loss<")[2].partition("</tr>")[0]
    assert ">2.0000<" in row and "chosen" not in row, "no loss is the lowest of both origins"
    assert (
        ">optimizer state<" in results and "&lt;b&gt;" in results and "<b>" not in results.partition("config.note")[2]
    )


def test_all_fields_of_both_stand_in_the_tables(client: TestClient, measured: str, told: str) -> None:
    page = client.get(f"/compare?runs={measured},{told}").text
    differing, _, equal = page.partition('id="differences"')[2].partition('id="equal-fields"')
    assert all(f">{field}<" in differing for field in ("config.batch", "workload", "workload.budget.steps"))
    assert all(f">{field}<" in differing + equal for field in ("seed", "optimizer.lr"))


def test_two_external_runs_differ_in_what_they_told(client: TestClient, told: str, services: Services) -> None:
    services.external_runs.append("other", batch({0: 3.0, 8: 1.0}, run=header(config={"batch": 64}, workload="a line")))
    page = client.get(f"/compare?runs={told},other,external:none").text
    differing = page.partition('id="differences"')[2].partition('id="equal-fields"')[0]
    assert ">config.batch<" in differing and ">512<" in differing and ">64<" in differing
    assert ">config.note<" in differing
    assert "<bdi>external:none</bdi>" in page


def test_its_curve_is_what_it_told(client: TestClient, measured: str, told: str) -> None:
    def drawn(panel: str, runs: str = told) -> dict[str, tuple[list[float], list[float]]]:
        answer = client.get(f"/compare/figures/panel.json?runs={runs}&panel={panel}")
        return {trace["name"]: (trace["x"], trace["y"]) for trace in answer.json()["data"]}

    traces = drawn("train_loss*tokens*s0", f"{measured},{told}")
    assert [name.endswith(" · logged") for name in traces] == [False, True]
    assert list(traces.values())[1] == ([600], [2.0]), "between steps at which it told its tokens"
    assert list(drawn("train_loss*steps*s0").values()) == [([6], [2.0])]
    assert list(drawn("val_loss*steps*s0").values()) == [([0, 4, 8], [3.0, 2.5, 2.0])]
    for axis in ("hours", "seconds"):
        assert not any("logged" in name for name in drawn(f"val_loss*{axis}*s0", f"{measured},{told}")), "never told"


def test_panels_draw_both_and_average_them_apart(client: TestClient, measured: str, told: str) -> None:
    path = f"/compare/figures/panel.json?runs={measured},{told}&panel="
    lines = client.get(f"{path}val_loss*steps*s0").json()["data"]
    assert len(lines) == 2 and lines[1]["y"] == [3.0, 2.5, 2.0]
    means = [trace["name"] for trace in client.get(f"{path}val_loss*steps*s0*by-candidate").json()["data"]]
    assert means == ["AdamW (n = 1)", "adamw · logged (n = 1)"], "one name, two origins, two means"
    (gap,) = client.get(f"{path}gap*steps*s0").json()["data"]
    assert gap["y"] == [0, 4, 8], "a metric of its own"
    assert client.get(f"{path}val_loss*hours*s0").json()["data"][0]["name"].startswith("AdamW")
    page = client.get(f"/compare?runs={measured},{told}").text
    assert '<option value="gap">' in page and '<option value="grad_norm">' in page
    removal = 'aria-label="Remove the panel'
    assert page.count(removal) == 2
    assert removal not in client.get(f"/compare?runs={measured},{told}&panel=gap").text, "both would be back"


def test_training_time_is_the_sum_of_the_steps_that_were_told(client: TestClient, services: Services) -> None:
    points = {10: {"step_seconds": 0.5}, 15: {"val_loss": 2.0}, 20: {"step_seconds": 1.0}, 30: {"val_loss": 1.0}}
    lines = tuple(SpoolLine(at=BEGAN + step, step=step, metrics=metrics) for step, metrics in points.items())
    services.external_runs.append("timed", LinesBatch(run=header(), part="first", lines=lines))
    (line,) = client.get("/compare/figures/panel.json?runs=timed&panel=val_loss*seconds*s0").json()["data"]
    assert line["x"] == [5.0] and line["y"] == [2.0], (
        "half of the ten seconds after step 10; nobody told those after 20"
    )


def test_a_figure_is_drawn_anew_once_its_external_run_goes_on(
    client: TestClient, told: str, services: Services
) -> None:
    path = f"/compare/figures/panel.json?runs={told}&panel=val_loss*steps*s0"
    tag = client.get(path).headers["ETag"]
    assert client.get(path, headers={"If-None-Match": tag}).status_code == 304
    continuation = batch({12: 1.0}, run=header("adamw", lr=0.002, seed=1, workload="a line"), part="second")
    services.external_runs.append("mine", continuation)
    response = client.get(path, headers={"If-None-Match": tag})
    assert response.status_code == 200 and response.json()["data"][0]["x"] == [0, 4, 8, 12]


def test_a_malformed_id_names_no_run(client: TestClient) -> None:
    for key in ("external:", "external:%00", "external:" + "x" * 999):
        answer = client.get(f"/compare?runs={key}")
        assert answer.status_code == 200
