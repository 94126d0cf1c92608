"""Attempts over time: as few lanes as ran at once, and a cross where one broke."""

from dashboards.data.reader import Reader
from dashboards.figures.base import ExperimentView
from dashboards.figures.timeline import attempts_timeline, experiment_attempts, lanes_of
from dashboards.palette import style
from dashboards.view_state import ViewState
from orchestrator.activity import AttemptSpan
from orchestrator.jobs import AttemptOutcome
from tests.factories.scaling import scaling_spec


def attempt_span(
    start: float, end: float | None, *, candidate: str = "adamw", outcome=None, message=None
) -> AttemptSpan:
    return AttemptSpan(
        run_id=f"x-{start:.0f}", experiment_id="x", candidate=candidate, attempt=1, node=None, leased_at=start,
        ended_at=end, outcome=outcome, message=message,
    )  # fmt: skip


def test_lanes_are_taken_again_as_soon_as_they_are_free():
    assert lanes_of([(0, 10), (1, 3), (2, 9), (3, 5), (10, 11), (10, 12)]) == [0, 1, 2, 1, 0, 1]
    assert lanes_of([]) == []


def test_a_thousand_attempts_are_a_trace_a_candidate():
    spans = [attempt_span(place, place + 2.5, candidate=("adamw", "adapm")[place % 2]) for place in range(1000)]
    titles, styles = {"adamw": "AdamW", "adapm": "AdaPM"}, {"adamw": style("adamw"), "adapm": style("adapm")}
    figure = attempts_timeline(spans, titles, styles, 2000.0, "light")
    assert [len(trace["x"]) for trace in figure["data"]] == [1500, 1500]
    assert max(y for trace in figure["data"] for y in trace["y"] if y) == 3


def test_a_running_attempt_reaches_until_now_and_a_broken_one_has_a_cross():
    spans = [attempt_span(10, None), attempt_span(11, 12, outcome=AttemptOutcome.BROKEN, message="<b>bad</b>")]
    figure = attempts_timeline(spans, {"adamw": "AdamW"}, {"adamw": style("adamw")}, 60.0, "dark")
    assert figure["data"][0]["x"][:2] == [10_000, 60_000]
    assert figure["data"][1]["text"] == ["&lt;b&gt;bad&lt;/b&gt;"]


def test_a_cells_attempts_are_those_of_its_runs(services, player):
    spec = scaling_spec()
    experiment = services.experiments.submit(spec).experiment
    player.finish()
    reader = Reader(services)
    for cell in spec.cells():
        snapshot = reader.snapshot(experiment.id, cell.key)
        view = ExperimentView(reader=reader, snapshot=snapshot, state=ViewState(cell=cell.key), theme="light")
        drawn = experiment_attempts(view)
        shown = {text.partition(" ")[0] for trace in drawn["data"] for text in trace["text"]}
        assert shown == {run.id for run in snapshot.runs} != set()


def test_there_are_as_many_lanes_as_ran_at_once():
    spans = [attempt_span(0, 5), attempt_span(6, 9)]
    figure = attempts_timeline(spans, {"adamw": "AdamW"}, {"adamw": style("adamw")}, 10.0, "light")
    assert figure["layout"]["yaxis"]["range"] == [1.5, 0.5]
