"""Figures of finished runs, from the records of a played experiment."""

from dataclasses import replace

import pytest

from api.cli.experiments.demo import DEMO
from dashboards.data.reader import Reader, Snapshot
from dashboards.figures.base import ExperimentView, Figure, bytes_axis
from dashboards.figures.registry import COMPARISON_FIGURES, SWEEP_FIGURES
from dashboards.figures.run import run_series
from dashboards.figures.tradeoffs import loss_by_price
from dashboards.palette import ThemeName, style
from dashboards.view_state import ViewState
from orchestrator.kinds.tuning import Tuning
from tests.factories.comparison import made_comparison
from worker.records.result import Verdict


@pytest.fixture
def reader(services) -> Reader:
    """A reader of the played services."""
    return Reader(services)


def figure(
    reader: Reader, snapshot: Snapshot, name: str, state: ViewState, theme: ThemeName, *, narrow: bool = False
) -> Figure:
    """The figure of that name in the table."""
    view = ExperimentView(reader=reader, snapshot=snapshot, state=state, theme=theme, narrow=narrow)
    return next(entry for entry in (*COMPARISON_FIGURES, *SWEEP_FIGURES) if entry.name == name).draw(view)


def test_a_run_that_broke_off_does_not_end_the_curve_of_the_other_seeds(reader, services, player):
    experiment = services.experiments.submit(DEMO.model_copy(update={"tuning": None, "seeds": (1, 2)})).experiment
    broken = player.begin()
    broken.report(30)
    broken.break_down("the disk is away")
    player.finish()
    snapshot = reader.snapshot(experiment.id)
    titles = {row.title for row in snapshot.comparison.rows}
    curves = figure(reader, snapshot, "curves", ViewState(), "light")["data"]
    ends = {trace["name"].split(" · ")[0]: max(trace["x"]) for trace in curves if "name" in trace}
    assert ends == dict.fromkeys(titles, DEMO.workload.budget.steps)


def test_learning_rates_show_means_seeds_and_diverged_runs(reader, finished):
    data = figure(reader, reader.snapshot(finished), "learning-rates", ViewState(), "light")["data"]
    lines = [trace for trace in data if trace["mode"] == "lines+markers"]
    assert [line["x"] for line in lines] == [[0.002, 0.004], [0.002, 0.004]]
    seeds = [trace for trace in data if trace["mode"] == "markers" and "yaxis" not in trace]
    assert [len(trace["x"]) for trace in seeds] == [4, 4]
    (diverged,) = [trace for trace in data if trace["name"] == "diverged"]
    assert diverged["x"] == [0.008, 0.008], "a rate of 1000 must not squeeze the others together"


@pytest.mark.parametrize("narrow", [False, True])
def test_learning_rates_of_a_tuned_comparison_tell_the_tuning_seed_from_the_compared_ones(
    reader, services, player, narrow
):
    spec = DEMO.model_copy(update={"tuning": Tuning(seeds=(0,)), "seeds": (1, 2, 3)})
    experiment = services.experiments.submit(spec).experiment
    player.finish()
    snapshot = reader.snapshot(experiment.id)
    drawing = figure(reader, snapshot, "learning-rates", ViewState(), "light", narrow=narrow)
    for row in snapshot.comparison.rows:
        tried, mean, seeds = (trace for trace in drawing["data"] if trace["name"] == row.title)
        losses = {
            (run.lr, run.seed): run.result.final_val_loss for run in snapshot.runs if run.candidate == row.candidate
        }
        assert row.val_loss is not None
        assert (mean["x"], mean["y"]) == ([row.best_lr], [pytest.approx(row.val_loss.mean)])
        assert not mean["marker"]["symbol"].endswith("-open")
        assert dict(zip(seeds["customdata"], seeds["y"], strict=True)) == {
            seed: losses[row.best_lr, seed] for seed in (1, 2, 3)
        }
        assert dict(zip(tried["x"], tried["y"], strict=True)) == {
            rate.lr: losses[rate.lr, 0] for rate in row.learning_rates
        }
        assert tried["marker"]["symbol"].endswith("-open") and tried["line"]["dash"] == "dot"
        assert "tuning seed 0" in tried["hovertemplate"]
    assert "tuning seed 0" in drawing["layout"]["annotations"][0]["text"].replace("<br>", " ")


def test_a_run_without_a_loss_is_marked_by_what_became_of_it(reader, finished):
    """One that ran out of memory has not diverged."""
    snapshot = reader.snapshot(finished)
    first = next(run for run in snapshot.runs if run.lr == 1e3)
    ended = first.result.model_copy(update={"verdict": Verdict.OUT_OF_MEMORY})
    runs = tuple(run.model_copy(update={"result": ended}) if run is first else run for run in snapshot.runs)
    data = figure(reader, replace(snapshot, runs=runs), "learning-rates", ViewState(), "light")["data"]
    marks = {trace["name"]: trace["hovertemplate"] for trace in data if trace.get("yaxis") == "y2"}
    assert {name: text.partition(":")[0] for name, text in marks.items()} == {
        "out of memory": "out of memory",
        "diverged": "diverged",
    }


def test_state_bytes_are_drawn_in_the_optimizers_colours(reader, finished):
    drawing = figure(reader, reader.snapshot(finished), "loss-memory", ViewState(), "light")
    marks = [trace for trace in drawing["data"] if trace.get("showlegend")]
    assert sorted(x for trace in marks for x in trace["x"]) == [3_720_192, 6_701_056]
    colours = {trace["marker"]["color"] for trace in marks}
    assert colours == {style("adamw").colour("light"), style("adapm").colour("light")}


def test_hidden_candidates_leave_all_figures(reader, finished):
    snapshot = reader.snapshot(finished)
    drawing = figure(reader, snapshot, "loss-memory", ViewState(hidden=("adamw",)), "light")
    assert [trace["x"] for trace in drawing["data"] if trace.get("showlegend")] == [[3_720_192]]
    rates = figure(reader, snapshot, "learning-rates", ViewState(hidden=("adamw",)), "light")["data"]
    assert [trace["name"] for trace in rates if trace["name"] == "diverged"] == []


def test_a_runs_figure_has_its_losses_and_three_meters(reader, services, finished):
    run = services.runs.page(experiment_id=finished)[0]
    drawing = run_series(reader.series([run])[0], style("adamw"), run.steps_total, "light")
    drawn = {trace["name"]: trace for trace in drawing["data"]}
    assert {"learning rate", "gradient norm", "step time, ms"} < set(drawn)
    assert drawn["validation loss"]["x"] == [60, 120, 180, 240]


def test_axes_of_bytes_are_written_as_tables_write_sizes():
    assert bytes_axis(1.4e9)["ticktext"] == ["0", "500 MB", "1 GB", "1.5 GB"]
    assert bytes_axis(950)["ticktext"] == ["0", "200 B", "400 B", "600 B", "800 B", "1 kB"]
    assert bytes_axis(1e9)["tickvals"][-1] >= 1e9
    assert bytes_axis(663e3, 637e3)["ticktext"] == ["640 kB", "650 kB", "660 kB", "670 kB"]
    assert bytes_axis(6.6902e6, 6.69e6)["ticktext"][:2] == ["6.69 MB", "6.69005 MB"]


def with_half_width(half: float, seeds: int = 3):
    """The made comparison with an interval of the difference that wide."""
    comparison = made_comparison()
    rows = [
        row.model_copy(
            update={
                "difference": row.difference
                and row.difference.model_copy(
                    update={"low": row.difference.mean - half, "high": row.difference.mean + half, "n": seeds}
                )
            }
        )
        for row in comparison.rows
    ]
    return comparison.model_copy(update={"rows": tuple(rows)})


def drawn_intervals(comparison):
    """Return the drawn intervals: of the differences to the baseline, about its loss."""
    intervals = [interval for interval in comparison.losses_beside_baseline().values() if interval.low is not None]
    assert len(intervals) == len(comparison.rows) - 1
    return intervals


@pytest.mark.parametrize("price", ["memory", "hours"])
@pytest.mark.parametrize("spreads", [0.0, 0.3, 1.0, 3.9])
def test_intervals_are_drawn_to_their_ends(price, spreads):
    means = [row.val_loss.mean for row in made_comparison().rows if row.val_loss]
    comparison = with_half_width(spreads * (max(means) - min(means)))
    looks = {row.candidate: style(row.optimizer) for row in comparison.rows}
    drawing = loss_by_price(comparison, looks, ViewState(), "light", price)
    low, high = drawing["layout"]["yaxis"]["range"]
    for interval in drawn_intervals(comparison):
        assert low < interval.low and interval.high < high
    assert not [trace for trace in drawing["data"] if "interval extends" in trace.get("hovertemplate", "")]


def test_an_interval_beyond_the_border_ends_there_in_an_arrow():
    comparison = with_half_width(50.0, seeds=2)
    looks = {row.candidate: style(row.optimizer) for row in comparison.rows}
    drawing = loss_by_price(comparison, looks, ViewState(), "light", "memory")
    border = drawing["layout"]["yaxis"]["range"]
    arrows = [trace for trace in drawing["data"] if "interval extends" in trace.get("hovertemplate", "")]
    assert [(trace["y"][0], trace["marker"]["symbol"]) for trace in arrows] == [
        (border[0], "triangle-down"),
        (border[1], "triangle-up"),
    ]
    for interval in drawn_intervals(comparison):
        assert any(f"extends to {interval.high:.4g}" in trace["hovertemplate"] for trace in arrows)


@pytest.mark.parametrize(("hours", "title", "drawn"), [(2e-4, "device-seconds", 0.72), (0.5, "device-hours", 0.5)])
def test_short_runs_are_told_in_seconds(hours, title, drawn):
    """Plotly writes 0.0002 hours as 200µ."""
    comparison = made_comparison()
    rows = tuple(row.model_copy(update={"run_device_hours": hours}) for row in comparison.rows)
    looks = {row.candidate: style(row.optimizer) for row in comparison.rows}
    drawing = loss_by_price(comparison.model_copy(update={"rows": rows}), looks, ViewState(), "light", "hours")
    assert drawing["layout"]["xaxis"]["title"]["text"].startswith(title)
    marks = [trace for trace in drawing["data"] if trace.get("showlegend")]
    assert [x for trace in marks for x in trace["x"]] == [pytest.approx(drawn)] * len(rows)
    assert f" at {'720 ms' if hours < 0.1 else '30 min 00 s'}" in marks[0]["hovertemplate"]
