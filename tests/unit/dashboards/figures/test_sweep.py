"""Figures of a sweep with outliers: axes are cut, values are not."""

from dashboards.figures.base import Figure
from dashboards.figures.sweep import objective, slices
from dashboards.palette import style
from orchestrator.jobs import RunStatus
from orchestrator.sweeps.records import SweepFinding, SweepReport, TrialRow
from tests.factories.sweep import RATES, sweep_spec
from worker.records.result import Verdict

SPACE = {"lr": RATES, "rank_ratio": {"kind": "uniform", "low": 0.1, "high": 0.5}}
SEARCHED = sweep_spec(candidates=[{"optimizer": "adapm", "space": SPACE}]).candidates[0]
STYLES = {"adapm": style("adapm")}


def report(*losses: float | None) -> SweepReport:
    """A sweep whose trials ended with these losses; one without diverged."""
    trials = tuple(
        TrialRow(
            number=number, run_id=f"s0-{number:04d}", candidate="adapm",
            parameters={"lr": 10.0 ** -(1 + number % 4), "rank_ratio": 0.1 + 0.1 * number % 0.5},
            status=RunStatus.SUCCEEDED, verdict=Verdict.DIVERGED if loss is None else None, steps=10, steps_total=10,
            objective=loss, last_val_loss=loss, optimizer_state_bytes=None, peak_memory_bytes=None, device_seconds=1.0,
        )
        for number, loss in enumerate(losses)
    )  # fmt: skip
    finding = SweepFinding(
        candidate="adapm", optimizer="adapm", title="AdaPM", best=None, trials=len(trials), converged=len(trials),
        stopped_early=0, diverged=0, out_of_memory=0, at_edge=(), importance=(),
    )  # fmt: skip
    return SweepReport(
        experiment_id="s0", name="a sweep", algorithm="random", complete=True, loss_name="validation loss",
        loss_unit=" nats", device=None, trials_planned=len(trials), device_hours=0.0,
        findings=(finding,), trials=trials, notes=(),
    )  # fmt: skip


def notes(figure: Figure) -> list[str]:
    """The sentences above the plots, without the names of small ones."""
    return [note["text"] for note in figure["layout"]["annotations"] if note["text"] not in SPACE]


def test_an_outlier_keeps_its_loss_and_is_counted_beyond_the_axis():
    for drawn in (
        objective(report(2.0, 2.5, 11.0, None), STYLES, "light"),
        slices(report(2.0, 2.5, 11.0, None), SEARCHED, style("adapm"), "light"),
    ):
        low, high = drawn["layout"]["yaxis"]["range"]
        assert low < 2.0 and 2.7 < high < 3.0
        marks = [trace for trace in drawn["data"] if trace["mode"] == "markers"]
        assert 11.0 in marks[0]["y"] and None not in marks[0]["y"]
        (note,) = notes(drawn)
        assert "1 trial above 2.7" in note and "1 trial without" in note


def test_the_axis_holds_the_whole_line_of_the_best_so_far():
    drawn = objective(report(4.2, 2.0, 11.0), STYLES, "light")
    line, marks, *_ = drawn["data"]
    assert line["y"][0] == marks["y"][0] == 4.2 < drawn["layout"]["yaxis"]["range"][1] < 11.0


def test_without_outliers_nothing_is_left_out():
    for drawn in (
        objective(report(2.0, 2.1), STYLES, "light"),
        slices(report(2.0, 2.1), SEARCHED, style("adapm"), "light"),
    ):
        assert notes(drawn) == []
    assert objective(report(None, None), STYLES, "light")["data"] == []


def test_losses_below_zero_have_outliers_above_them_too():
    """As the negative of a reward has."""
    sweep_report = report(-2.0, -1.8, 3.0)
    for drawn in (objective(sweep_report, STYLES, "light"), slices(sweep_report, SEARCHED, style("adapm"), "light")):
        low, high = drawn["layout"]["yaxis"]["range"]
        assert low < -2.0 and -1.8 < high < 0.0
        assert "1 trial above" in notes(drawn)[0]
