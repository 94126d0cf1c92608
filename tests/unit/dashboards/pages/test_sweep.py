"""The page of a sweep: what its tables and figures say, sorted as its address asks, with names that try to be code."""

import html
import re
from typing import Any

import pytest
from fastapi.testclient import TestClient

from dashboards.data.reader import Reader
from dashboards.figures.registry import SWEEP_FIGURES
from dashboards.figures.sweep import slices
from dashboards.files.figures import FigureFiles
from dashboards.files.report import report
from dashboards.files.traces import FigureError
from dashboards.palette import style
from orchestrator.jobs import LeasePolicy, RunAction
from orchestrator.kinds.registry import validate_spec
from orchestrator.services.composition import Services
from orchestrator.specs.text import parse
from orchestrator.store.queue.queue import Queue
from tests.factories.playing import DEMO
from tests.factories.stores import claim, result
from tests.factories.sweep import RATES, add_trial, sweep_spec
from tests.unit.dashboards.conftest import HOSTILE
from worker.footprint.process import FootprintAnswer
from worker.records.protocol import PointsBatch
from worker.records.result import Point, Verdict

OUTCOMES = [
    result(final_val_loss=2.61),
    result(final_val_loss=2.52),
    result(final_val_loss=None, verdict=Verdict.STOPPED_EARLY, steps=4),
    result(final_val_loss=2.43),
    result(final_val_loss=None, verdict=Verdict.DIVERGED, steps=2),
]
"""The outcomes of trials 0, 2, 4 (AdamW) and 1, 3 (AdaPM); a sixth one waits."""


@pytest.fixture
def swept(services: Services) -> str:
    """A sweep of which five trials have ended."""
    space = {"lr": RATES, "rank_ratio": {"kind": "catalog"}}
    candidates = [{"optimizer": "adamw"}, {"optimizer": "adapm", "label": HOSTILE, "space": space}]
    spec = sweep_spec(name=HOSTILE, candidates=candidates, algorithm="asha", trials=8)
    sweep_id = services.experiments.submit(spec).experiment.id
    database = services.database
    queue = Queue(database, LeasePolicy())
    for number, outcome in enumerate([*OUTCOMES, None]):
        add_trial(database, sweep_id, spec, number)
        if outcome is not None:
            (lease,) = claim(queue, cpus=1, limit=1)
            services.attempts.hello(lease.run_id, 1, lease.token)
            points = PointsBatch.from_points(sequence=0, points=(Point(step=4, tokens=4, val_loss=3.21),))
            services.attempts.append_points(lease.run_id, 1, lease.token, points)
            services.attempts.finish(lease.run_id, 1, lease.token, outcome)
    return sweep_id


def test_the_page_says_what_the_report_says(client: TestClient, services: Services, swept: str):
    page = client.get(f"/experiments/{swept}").text
    report = services.analysis.sweep(swept)
    for note in report.notes:
        assert note.partition("(")[0] in page
    best = report.best()
    assert best is not None and best.objective == 2.43
    assert "2.4300 nats" in page
    assert page.count(">stopped early</span>") == page.count(">diverged</span>") == 1
    assert "(3.2100)" in page, "a loss that does not rank stands in parentheses"


def test_the_report_has_the_sweeps_answer_figures_and_trials(services: Services, swept: str):
    text = report(
        FigureFiles(Reader(services)),
        swept,
        "1.0",
    )
    assert text.count("<img ") == len(SWEEP_FIGURES)
    assert "2.4300 nats" in text
    assert "stopped early" in text and "diverged" in text
    assert "asha, 8 trials" in text
    assert HOSTILE not in text


def test_the_best_trials_stand_first(client: TestClient, swept: str):
    page = client.get(f"/experiments/{swept}").text
    assert re.findall(rf'row-link mono" href="/runs/{swept}-(\d+)"', page)[:3] == ["0003", "0001", "0000"]


def test_hostile_names_are_text_and_nothing_is_inline(client: TestClient, swept: str):
    for path in ("/", f"/experiments/{swept}", f"/experiments/{swept}?candidate=<script>"):
        page = client.get(path).text
        assert "<script>alert" not in page and "&lt;script&gt;alert(1)" in page
        assert not re.search(r"<script(?![^>]*\bsrc=)", page)
        assert not re.search(r"<style|\sstyle=|\son\w+=", page)


def test_the_figures_show_every_trial_that_has_a_loss(client: TestClient, swept: str):
    def drawn(name: str, part: str = "data") -> Any:
        return client.get(f"/experiments/{swept}/figures/{name}.json?theme=dark").json()[part]

    marks = [trace for trace in drawn("objective") if trace["mode"] == "markers"]
    shown = {number: symbol for trace in marks for number, symbol in _pairs(trace)}
    assert set(shown) == {0, 1, 2, 3}
    assert str(shown[2]).endswith("-open")
    (note,) = drawn("objective", "layout")["annotations"]
    assert "1 trial without" in note["text"]
    assert [len(trace["x"]) for trace in drawn("slices")] == [2, 2], "of the best one, AdaPM: two hyperparameters"
    assert drawn("importance") == []  # too few trials


def _pairs(trace: dict[str, object]) -> list[tuple[int, str]]:
    x, marker = trace["x"], trace["marker"]
    assert isinstance(x, list) and isinstance(marker, dict)
    return list(zip(x, marker["symbol"], strict=True))


def test_a_figure_of_another_kind_is_refused_as_in_rest(client: TestClient, services: Services, swept: str):
    comparison = services.experiments.submit(DEMO).experiment.id
    for path in (f"/experiments/{swept}/figures/curves.json", f"/experiments/{comparison}/figures/slices.json"):
        with pytest.raises(FigureError, match="has no figure"):
            client.get(path)


def test_pages_of_comparisons_tell_people_that_a_sweep_is_none(
    client: TestClient, swept: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(
        "worker.footprint.process.count_footprints", lambda questions: [FootprintAnswer()] * len(questions)
    )
    for path in ("/fits", "/profiles"):
        answer = client.get(path, params={"experiments": swept})
        assert (answer.status_code, answer.headers["content-type"]) == (409, "text/html; charset=utf-8")
        assert "is a sweep" in answer.text and "409" in answer.text


def test_an_empty_sweep_and_a_trial_have_pages(client: TestClient, services: Services, swept: str):
    empty = services.experiments.submit(sweep_spec()).experiment.id
    assert client.get(f"/experiments/{empty}").status_code == 200
    assert client.get(f"/runs/{swept}-0000").status_code == client.get(f"/runs/{swept}-0002").status_code == 200
    assert client.get("/").text.count("no result yet") == 1


def test_slices_show_the_losses_where_the_hyperparameters_are(services: Services, swept: str):
    report = services.analysis.sweep(swept, importance=False)
    space = {"lr": RATES, "rank_ratio": {"kind": "uniform", "low": 0.1, "high": 0.5}}
    searched = sweep_spec(candidates=[{"optimizer": "adapm", "space": space}]).candidates[0]
    tried = [({"lr": 10.0**-power, "rank_ratio": share}, loss) for power, share, loss in SPOTS]
    trials = tuple(
        report.trials[0].model_copy(
            update={"number": number, "candidate": "adapm", "parameters": parameters, "objective": loss}
        )
        for number, (parameters, loss) in enumerate(tried)
    )
    sweep_report = report.model_copy(update={"trials": trials})
    sliced = slices(sweep_report, searched, style("adapm"), "light")["data"]
    assert [trace["y"] for trace in sliced] == [[loss for _, _, loss in SPOTS]] * 2
    assert sliced[0]["x"] == pytest.approx([(4 - power) / 3 for power, _, _ in SPOTS])


SPOTS = ((4, 0.1, 2.8), (1, 0.5, 2.4), (2, 0.2, 2.6), (3, 0.4, 2.5))
"""(minus the exponent of the rate, rank ratio, loss)."""


def test_the_best_trials_become_a_comparison_over_fresh_seeds(client: TestClient, services: Services, swept: str):
    early = client.get(f"/new?best_of={swept}&trials=1&seeds=4")
    assert early.status_code == 409 and "5 of 16" in early.text
    assert 'name="best_of"' not in client.get(f"/experiments/{swept}").text
    services.experiments.apply(swept, RunAction.CANCEL)
    page = client.get(f"/new?best_of={swept}&trials=1&seeds=4").text
    text = html.unescape(page.split('<textarea id="yaml"')[1].partition(">")[2].partition("</textarea>")[0])
    spec = validate_spec(parse(text, "the form"))
    assert spec == services.analysis.sweep_comparison(swept, 4) and len(spec.seeds) == 4 and 0 not in spec.seeds
    assert 'class="chip good">valid' in page
    refused = client.get(f"/new?best_of={swept}&trials=2")
    assert refused.status_code == 409 and "1 trial of" in refused.text and "not 2" in refused.text
    assert client.get("/new?best_of=none").status_code == 404
    assert f'name="best_of" value="{swept}"' in client.get(f"/experiments/{swept}").text


def test_readers_add_panels_to_a_sweep(client: TestClient, swept: str):
    form = {"edit": "0", "p_metric": "val_loss", "p_across": "steps", "p_smooth": "0", "p_by": ""}
    sent = client.get(f"/experiments/{swept}", params={"candidate": "adamw"} | form, follow_redirects=False)
    address = sent.headers["Location"]
    assert "candidate=adamw" in address and "panel=val_loss*steps*s0" in address
    assert 'id="figure-panel-0"' in client.get(address).text
    figure = f"/experiments/{swept}/figures/panel.json?panel=val_loss*steps*s0"
    assert len(client.get(figure).json()["data"]) == 5, "each trial with a loss"
