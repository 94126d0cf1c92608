"""Panels: their words survive addresses, their lines are the runs' own values, their means are over one optimizer."""

from dataclasses import replace

import numpy as np
import pytest
from fastapi.testclient import TestClient

from dashboards.data.any_run import AnyRun, group_fields
from dashboards.data.panels import METRICS, Panel, edit_panels
from dashboards.data.reader import Reader
from dashboards.figures.base import Figure
from dashboards.figures.panels import MOST_LINES, draw_panel, panel_lines
from dashboards.files.vector import vector
from dashboards.palette import ThemeName
from tests.factories.scaling import scaling_spec


def panel_figure(reader: Reader, runs, panel: Panel, theme: ThemeName = "light") -> Figure:
    return draw_panel(panel_lines(reader, [AnyRun(record=run) for run in runs], panel, {}), panel, theme)


@pytest.mark.parametrize(
    "panel",
    [
        Panel(),
        Panel(metric="grad_norm", x="tokens", smooth=0, log=True, by="seed"),
        Panel(metric="lr", by="optimizer.options.rank_ratio"),
    ],
)
def test_a_panel_survives_its_word(panel: Panel) -> None:
    assert Panel.parse(panel.word()) == panel


@pytest.mark.parametrize(
    "word",
    ["", "*", "secret*furlongs*s99999*..*nan..inf*by-", "train_loss*s\u00b2*1..x*wide", "<b>*by-<b>" + "x" * 999],
)
def test_a_word_that_is_not_understood_opens_all_the_same(word: str, services, runs) -> None:
    panel = Panel.parse(word)
    assert (panel.metric, panel.x) == ("train_loss", "steps") and panel.smooth <= 30 and len(panel.by) <= 80
    reader = Reader(services)
    drawn = panel_figure(reader, runs[:2], panel)
    assert drawn["data"] and "<b>" not in str(drawn["data"])


def test_a_form_changes_one_panel_or_adds_one() -> None:
    panels = (Panel(metric="lr"), Panel(metric="grad_norm"))
    sent = {"metric": "val_loss", "across": "hours", "smooth": "7", "log_y": "1"}
    sent = {"edit": "0"} | {f"p_{name}": value for name, value in sent.items()}
    changed = edit_panels(panels, sent)
    assert changed == (Panel(metric="val_loss", x="hours", smooth=7, log=True), panels[1])
    assert edit_panels(panels, {"edit": "\u00b2"}) == (*panels, Panel())
    assert len(edit_panels(panels * 4, {"edit": "8"})) == 8


def test_lines_are_the_runs_own_and_means_are_of_one_optimizer(services, runs) -> None:
    reader = Reader(services)
    drawing = panel_figure(reader, runs[:3], Panel(metric="lr", smooth=0))
    assert len(drawing["data"]) == 3
    points = services.runs.points(runs[0].id)
    rate_by_step = {point.step: point.lr for point in points if point.lr is not None}
    line = drawing["data"][0]
    assert line["y"] == pytest.approx([rate_by_step[int(step)] for step in line["x"]], rel=1e-4)

    means = panel_figure(reader, runs, Panel(metric="val_loss", smooth=0, by="candidate"), "dark")
    named = [trace for trace in means["data"] if "name" in trace]
    assert len(named) == len({run.candidate for run in runs})
    first = [run for run in runs if run.candidate == runs[0].candidate]
    assert f"(n = {len(first)})" in named[0]["name"]
    for index in (0, -1):
        step = named[0]["x"][index]
        values = [p.val_loss for run in first for p in services.runs.points(run.id) if p.step == step]
        losses = [value for value in values if value is not None]
        assert len(losses) == len(first) > 1
        assert named[0]["y"][index] == pytest.approx(float(np.mean(losses)), rel=1e-4)
    by_seed = panel_figure(reader, runs, Panel(by="seed"))
    names = [trace["name"] for trace in by_seed["data"] if "name" in trace]
    assert len(names) == len({(run.candidate, run.seed) for run in runs}), "no mean over different candidates"


def test_a_panel_with_more_runs_than_it_draws_says_how_many(services, runs) -> None:
    record, panel = AnyRun(record=runs[0]), Panel(metric="lr", smooth=0)
    for count, caption in (
        (MOST_LINES, "step"),
        (MOST_LINES + 1, f"step · {MOST_LINES} of {MOST_LINES + 1} runs drawn"),
    ):
        lines = panel_lines(Reader(services), [record] * count, panel, {})
        drawn = draw_panel(lines, panel, "light", runs=count)
        assert len(drawn["data"]) == MOST_LINES
        assert drawn["layout"]["xaxis"]["title"]["text"] == caption


def test_a_metric_that_nobody_reported_is_a_sentence_and_the_axis_may_be_logarithmic(services, runs) -> None:
    reader = Reader(services)
    nothing = panel_figure(reader, runs, Panel(metric="kl_nats"))
    assert nothing["data"] == [] and "reported" in str(nothing["layout"]["annotations"])
    drawn = panel_figure(reader, runs, Panel(by="lr", log=True))
    assert drawn["layout"]["yaxis"]["type"] == "log"
    assert vector(drawn, "svg", title="a panel", theme="light").startswith(b"<?xml")


def test_pages_show_change_and_keep_their_panels(client: TestClient, services, finished, runs) -> None:
    for path, query in ((f"/experiments/{finished}", "x=tokens"), ("/compare", f"runs={runs[0].id},{runs[1].id}")):
        form = {"edit": "0", "p_metric": "grad_norm", "p_across": "steps", "p_smooth": "5", "p_by": "candidate"}
        added = client.get(f"{path}?{query}", params=dict(p.split("=") for p in [query]) | form, follow_redirects=False)
        address = added.headers["Location"]
        assert added.status_code == 303 and address.endswith("#panels") and "panel=grad_norm*steps*s5" in address
        assert all(f"&{name}=" not in address for name in ("by", "metric", "edit")), "no field becomes the page's own"
        page = client.get(address).text
        assert 'id="figure-panel-0"' in page and query.split("=")[1].split(",")[0] in address
        figure = page.split('id="figure-panel-0"')[0].rpartition('data-figure="')[2].partition('"')[0]
        drawn = client.get(figure.replace("&amp;", "&"))
        assert drawn.status_code == 200 and drawn.json()["data"]
        assert client.get(figure.replace("&amp;", "&").replace(".json", ".csv")).status_code == 200
        assert "panel=grad_norm" in page.partition('id="curves-head"')[2] or path == "/compare", "other views keep them"
    assert {"candidate", "optimizer.name"} <= set(group_fields([AnyRun(record=run) for run in runs]))
    assert set(METRICS) > {"train_loss", "val_loss", "host_rss_bytes"}


def test_a_scaling_experiments_panel_has_the_runs_of_every_size(client, services, player) -> None:
    candidates = [{"optimizer": optimizer, "learning_rates": [0.004]} for optimizer in ("adamw", "adapm")]
    experiment = services.experiments.submit(scaling_spec(seeds=[1], candidates=candidates)).experiment
    player.finish()
    path, panel = f"/experiments/{experiment.id}", "panel=train_loss*steps*s3*by-model"
    page = client.get(f"{path}?{panel}").text
    assert 'id="figure-panel-0"' in page and "<option selected>model</option>" in page
    drawn = client.get(f"{path}/figures/panel.json?{panel}").json()["data"]
    sizes = len(experiment.spec.sizes)
    assert len([trace for trace in drawn if "name" in trace]) == 2 * sizes > 4, "a mean for each optimizer and size"
    cell = experiment.spec.cells()[0].key
    drawn = client.get(f"{path}/figures/panel.json", params={"cell": cell, "panel": "train_loss*steps*s3"}).json()[
        "data"
    ]
    assert len(drawn) == 2, "a cell's own"


def test_a_metric_of_another_loop_survives_the_address() -> None:
    metrics = ("eval/loss*2", "a b&c=d")
    for metric in metrics:
        panel = Panel(metric=metric, by="candidate")
        assert Panel.parse(panel.word(), metrics) == panel
    assert edit_panels((), {"edit": "0", "p_metric": "a b&c=d"}, metrics)[0].metric == "a b&c=d"


def test_a_run_that_diverges_leaves_the_figure_instead_of_flattening_it(services, runs) -> None:
    hot = next(run for run in runs if run.result and run.result.final_val_loss is None)
    calm = next(run for run in runs if run.result and run.result.final_val_loss is not None)
    axis = panel_figure(Reader(services), [calm, hot], Panel())["layout"]["yaxis"]
    low, high = axis["range"]
    assert low < calm.result.final_val_loss < high < 10
    assert "range" not in panel_figure(Reader(services), [calm], Panel())["layout"]["yaxis"]


def test_losses_below_zero_are_all_in_sight(services, runs) -> None:
    panel = Panel()
    lines = panel_lines(Reader(services), [AnyRun(record=run) for run in runs[:2]], panel, {})
    drops = [replace(line, rows=replace(line.rows, smoothed=line.rows.smoothed - 20)) for line in lines]
    spiked = replace(drops[0].rows, smoothed=np.where(drops[0].rows.steps == 2, 5.0, drops[0].rows.smoothed))
    drawn = draw_panel([replace(drops[0], rows=spiked), drops[1]], panel, "light")
    assert "range" not in drawn["layout"]["yaxis"]
