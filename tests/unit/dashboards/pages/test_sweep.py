"""The page of a sweep: what its tables and figures say, sorted as its address asks, with names that try to be code."""

import html
import math
import re
from typing import Any
from urllib.parse import parse_qsl

import numpy as np
import pytest
from fastapi.testclient import TestClient

from dashboards.data.reader import Reader
from dashboards.data.trials import Brush, SweepView, TrialOrder, sorted_trials
from dashboards.figures.base import CIVIDIS
from dashboards.figures.registry import SWEEP_FIGURES
from dashboards.figures.sweep import CELLS, MARGIN_RIGHT, SLANT, contour, interpolate, parallel, slices
from dashboards.files.figures import FigureFiles
from dashboards.files.report import report
from dashboards.files.vector import FigureError
from dashboards.palette import style
from dashboards.text.answers import value_text
from dashboards.view_state import ViewState
from orchestrator.jobs import LeasePolicy, RunAction
from orchestrator.kinds.registry import validate_spec
from orchestrator.kinds.trials import planned_parameters, trial_run
from orchestrator.services.composition import Services
from orchestrator.specs.text import parse
from orchestrator.store.queue import trials
from orchestrator.store.queue.queue import Queue
from orchestrator.sweeps import importance
from tests.factories.playing import DEMO
from tests.factories.stores import claim, result
from tests.factories.sweep import RATES, sweep_spec
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
"""Of trials 0, 2, 4 (AdamW) and 1, 3 (AdaPM); a sixth one waits."""


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
        parameters = planned_parameters(spec, number)
        assert parameters is not None
        trials.add(database, sweep_id, spec, number, trial_run(spec, number, parameters))
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
    assert "has the lowest validation loss so far: 2.4300 nats" in page
    assert page.count(">stopped early</span>") == page.count(">diverged</span>") == 1
    assert "(3.2100)" in page, "a loss that does not rank stands in parentheses"


def test_the_report_has_the_sweeps_answer_figures_and_trials(services: Services, swept: str):
    text = report(FigureFiles(Reader(services.experiments, services.runs, services.analysis)), swept, "1.0")
    assert text.count("<img ") == len(SWEEP_FIGURES)
    assert "has the lowest validation loss so far: 2.4300 nats" in text
    assert "stopped early" in text and "diverged" in text
    assert "asha, 8 trials of each optimizer" in text
    assert HOSTILE not in text


def test_a_sweep_has_no_figures_of_a_comparison(services: Services, swept: str):
    with pytest.raises(
        FigureError, match="a sweep has no figure 'curves'; it has objective, parallel, slices, contour, importance"
    ):
        FigureFiles(Reader(services.experiments, services.runs, services.analysis)).picture(
            swept, "curves", ViewState()
        )


def test_trials_are_sorted_as_the_address_asks(client: TestClient, swept: str):
    def numbers(query: str) -> list[int]:
        page = client.get(f"/experiments/{swept}{query}").text
        return [int(each) for each in re.findall(rf'row-link mono" href="/runs/{swept}-(\d+)"', page)]

    assert numbers("?sort=number") == [0, 1, 2, 3, 4, 5]
    assert numbers("?sort=-number") == [5, 4, 3, 2, 1, 0]
    assert numbers("")[:3] == numbers("?sort=objective")[:3] == numbers("?sort=<b>")[:3] == [3, 1, 0]
    assert numbers("?sort=-objective")[:3] == [0, 1, 3]


def test_hostile_names_are_text_and_nothing_is_inline(client: TestClient, swept: str):
    for path in ("/", f"/experiments/{swept}", f"/experiments/{swept}?candidate=<script>&sort=<b>"):
        page = client.get(path).text
        assert "<script>alert" not in page and "&lt;script&gt;alert(1)" in page
        assert not re.search(r"<script(?![^>]*\bsrc=)", page)
        assert not re.search(r"<style|\sstyle=|\son\w+=", page)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_figures_show_every_trial_that_has_a_loss(client: TestClient, swept: str, theme: str):
    def drawn(name: str, part: str = "data") -> Any:
        return client.get(f"/experiments/{swept}/figures/{name}.json?theme={theme}").json()[part]

    marks = [trace for trace in drawn("objective") if trace["mode"] == "markers"]
    shown = {number: symbol for trace in marks for number, symbol in _pairs(trace)}
    assert set(shown) == {0, 1, 2, 3}
    assert str(shown[2]).endswith("-open")
    lost, said = drawn("objective", "layout")["annotations"]
    assert (lost["text"], lost["x"], lost["y"], lost["yref"]) == ("×", 4, 1.0, "paper"), "it has no loss"
    assert said["text"] == "at the upper edge: 1 trial without a loss"
    lines = drawn("parallel")  # of the best one, AdaPM: two trials over two hyperparameters and the loss
    assert [trace["x"] for trace in lines] == [[0, 1, 2, None], [0, 1, 2, None]]
    assert drawn("importance") == []  # too few trials


def test_every_axis_of_parallel_coordinates_has_room_for_its_name(services: Services, swept: str):
    """Names slant to the right, so that the first one is not cut, and the last one has its room."""
    report = services.analysis.sweep(swept, importance=False)
    rules = {f"rule:*.{letter}_proj.weight": {"kind": "choice", "values": ["full", "none"]} for letter in "abcdefgh"}
    rights = []
    for space in ({}, rules):
        fields = {"optimizer": "adapm", "label": HOSTILE, "space": {"lr": RATES} | space}
        searched = sweep_spec(candidates=[fields]).candidates[0]
        kept = dict.fromkeys(space, "full")
        trials = [each.model_copy(update={"parameters": each.parameters | kept}) for each in report.trials]
        drawn = parallel(report.model_copy(update={"trials": tuple(trials)}), searched, style("adapm"), "light")
        assert drawn["layout"]["xaxis"]["autotickangles"] == [0, -SLANT]
        rights.append(drawn["layout"]["margin"]["r"])
    assert rights[0] == MARGIN_RIGHT and rights[1] > 5 * len("validation loss")


def test_no_page_waits_for_importances(client: TestClient, swept: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(importance, "is_loaded", lambda: False)
    monkeypatch.setattr("orchestrator.sweeps.report._importance", lambda *_: pytest.fail("it was computed"))
    assert 'data-poll="1500">Importances are being computed' in client.get(f"/experiments/{swept}").text
    assert client.get(f"/experiments/{swept}/figures/objective.json").json()["data"]
    monkeypatch.undo()
    client.get(f"/experiments/{swept}/figures/importance.json")  # waits for them
    assert "data-poll" not in client.get(f"/experiments/{swept}").text


def test_the_best_so_far_reaches_to_the_newest_trial(client: TestClient, swept: str):
    figure = client.get(f"/experiments/{swept}/figures/objective.json").json()
    lines = [trace["x"] for trace in figure["data"] if trace["mode"] == "lines"]
    assert lines == [[1, 3, 5, 5.5], [0, 2, 4, 5.5]]


def test_home_counts_the_trials_that_there_will_be(client: TestClient, swept: str):
    assert '<span class="num">5/16</span>' in client.get("/").text


def _pairs(trace: dict[str, object]) -> list[tuple[int, str]]:
    x, marker = trace["x"], trace["marker"]
    assert isinstance(x, list) and isinstance(marker, dict)
    return list(zip(x, marker["symbol"], strict=True))


def test_a_figure_of_another_kind_is_nowhere(client: TestClient, services: Services, swept: str):
    comparison = services.experiments.submit(DEMO).experiment.id
    assert client.get(f"/experiments/{swept}/figures/curves.json").status_code == 404
    assert client.get(f"/experiments/{comparison}/figures/parallel.json").status_code == 404


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
    assert "No trial has started yet." in client.get(f"/experiments/{empty}").text
    assert client.get(f"/runs/{swept}-0000").status_code == client.get(f"/runs/{swept}-0002").status_code == 200
    assert client.get("/").text.count("no result yet") == 1


def test_orders_and_values_in_words(services: Services, swept: str):
    report = services.analysis.sweep(swept)
    assert TrialOrder.parse(None) == TrialOrder.parse("nonsense") == TrialOrder()
    assert [TrialOrder().turn(key).text() for key in ("objective", "number")] == ["-objective", "number"]
    assert [TrialOrder().aria(key) for key in ("objective", "number")] == ["ascending", "none"]
    assert len(sorted_trials(report.trials, TrialOrder())) == len(report.trials)
    words = [value_text(value) for value in (None, True, 3, 0.00123456, "svd")]
    assert words == ["null", "true", "3", "0.00123", "svd"]


def test_a_brush_keeps_the_trials_that_cross_its_axis_there(client: TestClient, services: Services, swept: str):
    report = services.analysis.sweep(swept, importance=False)
    (rate,) = {each.parameters["lr"] for each in report.trials if each.number == 3}
    assert isinstance(rate, float)
    place = 100 * math.log(rate / 1e-4) / math.log(1e-1 / 1e-4)  # the axis is logarithmic
    path, brush = f"/experiments/{swept}", f"brush=lr*{place - 1:.1f}*{place + 1:.1f}"
    page = client.get(f"{path}?{brush}").text
    assert re.findall(r'name="runs" value="([^"]+)"', page) == [f"{swept}-0003"]
    assert "1 of 6, those that the brushes keep" in page
    drawn = client.get(f"{path}/figures/parallel.json?{brush}").json()["data"]
    kept = [each for each in drawn if each["line"]["width"] == 3.2]
    assert [each["text"][0].partition(":")[0] for each in kept] == ["trial 3"]
    assert [each["line"]["width"] for each in drawn] == [1.3, 3.2, 12], "what is left out, what is kept, the brush"
    assert "The brushes keep no trial." in client.get(f"{path}?brush=lr*0*0.1").text
    assert client.get(f"{path}?axis=lr&from=0&to=100").text.count('name="runs"') == 6, "a form's whole axis is no brush"


@pytest.mark.parametrize("word", ["", "lr", "lr*1", "lr*a*b", "lr*nan*3", "*" * 9])
def test_a_brush_that_is_not_understood_is_left_out(client: TestClient, swept: str, word: str):
    view = SweepView.parse([("brush", word), ("candidate", "<b>"), ("up", "x" * 999)])
    assert view.brushes == () and len(view.up) < 999
    assert client.get(f"/experiments/{swept}", params={"brush": word}).status_code == 200


def test_a_view_of_a_sweep_survives_its_address():
    brushes = Brush(axis="rule:*.weight", low=12.5, high=60), Brush(axis="loss", low=0, high=50)
    view = SweepView(
        order=TrialOrder(key="number", descending=True), candidate="adamw", across="lr", up="beta2", brushes=brushes,
        panels=("lr*steps*s3",),
    )  # fmt: skip
    assert SweepView.parse(parse_qsl(view.query()[1:])) == view
    assert view.replace(candidate="adapm").brushes == (), "another candidate has another space"
    assert view.remove(brushes[0]).brushes == brushes[1:]


def test_slices_and_contour_show_the_losses_where_the_hyperparameters_are(services: Services, swept: str):
    report = services.analysis.sweep(swept, importance=False)
    space = {"lr": RATES, "rank_ratio": {"kind": "uniform", "low": 0.1, "high": 0.5}}
    searched = sweep_spec(candidates=[{"optimizer": "adapm", "space": space}]).candidates[0]
    tried = [({"lr": 10.0**-power, "rank_ratio": share}, loss) for power, share, loss in SPOTS]
    trials = tuple(
        report.trials[0].model_copy(
            update={"number": number, "candidate": "adapm", "parameters": at, "objective": loss}
        )
        for number, (at, loss) in enumerate(tried)
    )
    found = report.model_copy(update={"trials": trials})
    sliced = slices(found, searched, style("adapm"), "light")["data"]
    assert [each["y"] for each in sliced] == [[loss for _, _, loss in SPOTS]] * 2
    assert sliced[0]["x"] == pytest.approx([(4 - power) / 3 for power, _, _ in SPOTS])
    cells, marks = contour(found, searched, ("lr", "rank_ratio"), "light")["data"]
    assert marks["y"] == pytest.approx([(share - 0.1) / 0.4 for _, share, _ in SPOTS])
    assert len(cells["x"]) == len(cells["marker"]["color"]) == CELLS**2
    places = zip(cells["x"], cells["base"], strict=True)
    corners = dict(zip(places, cells["marker"]["color"], strict=True))
    ends = corners[max(corners)], corners[min(corners)]
    assert ends == (CIVIDIS[0], CIVIDIS[-1]), "near a trial the field is its loss"
    few = contour(found.model_copy(update={"trials": trials[:3]}), searched, ("lr", "rank_ratio"), "light")
    assert few["data"] == [] and contour(found, searched, None, "light")["data"] == []


SPOTS = ((4, 0.1, 2.8), (1, 0.5, 2.4), (2, 0.2, 2.6), (3, 0.4, 2.5))
"""(minus the exponent of the rate, rank ratio, loss)."""


def test_the_field_of_a_contour_is_the_mean_by_inverse_squares():
    spots, values = np.array([[0.0, 0.0], [1.0, 0.0]]), np.array([2.0, 4.0])
    for place in ((0.25, 0.5), (0.9, 0.1)):
        softened = (0.25 / CELLS) ** 2
        weights = [1 / ((place[0] - x) ** 2 + (place[1] - y) ** 2 + softened) for x, y in spots]
        by_hand = sum(w * v for w, v in zip(weights, values, strict=True)) / sum(weights)
        assert interpolate(spots, values, np.array([place]))[0] == pytest.approx(by_hand)


def test_the_best_trials_become_a_comparison_over_fresh_seeds(client: TestClient, services: Services, swept: str):
    early = client.get(f"/new?best_of={swept}&trials=1&seeds=4")
    assert early.status_code == 409 and "5 of 16 trials" in early.text
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
    sent = client.get(f"/experiments/{swept}?sort=number", params={"sort": "number"} | form, follow_redirects=False)
    address = sent.headers["Location"]
    assert "sort=number" in address and "panel=val_loss*steps*s0" in address
    assert 'id="figure-panel-0"' in client.get(address).text
    figure = f"/experiments/{swept}/figures/panel.json?panel=val_loss*steps*s0"
    assert len(client.get(figure).json()["data"]) == 5, "each trial with a loss"
    assert client.get(f"{figure}&brush=loss*0*0.1").json()["data"][0]["name"].endswith("seed 0")
    assert len(client.get(f"{figure}&brush=loss*0*0.1").json()["data"]) == 1, "the best one of AdaPM"
