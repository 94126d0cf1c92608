"""The figure of loss curves."""

from dataclasses import replace

import numpy as np
import pytest

from dashboards.data.series import Series, series
from dashboards.figures.curves import Curve, loss_curves
from dashboards.palette import external_styles, style
from dashboards.view_state import ViewState
from orchestrator.columns import columns_of
from worker.records.result import Point

STEPS = 100


def run(floor: float, *, until: int = STEPS, diverges: bool = False) -> Series:
    """A run whose loss falls from 5.5 to about `floor`, or explodes at step 20."""
    points = []
    for step in range(until + 1):
        value = floor + (5.5 - floor) * np.exp(-step / 10)
        if diverges and step >= 20:
            value = 1e4
        points.append(
            Point(step=step, tokens=10 * step, train_loss=value, val_loss=value if step % 25 == 0 else None,
                  step_seconds=0.1)
        )  # fmt: skip
    return series(columns_of(points), ended=until == STEPS)


def curve(optimizer: str = "adapm", title: str = "AdaPM", *, seeds: int = 2, **made) -> Curve:
    """A curve of equal-looking seeds."""
    return Curve(
        candidate=optimizer,
        title=title,
        lr=0.004,
        style=style(optimizer),
        seeds=tuple(run(2.2 + 0.1 * seed, **made) for seed in range(seeds)),
    )


def names(figure) -> list[str]:
    """The lines of a figure by name: of training and validation alike."""
    return list(dict.fromkeys(trace["name"] for trace in figure["data"] if "name" in trace))


def test_validation_marks_are_the_mean_over_seeds_without_the_untrained_loss():
    figure = loss_curves([curve()], ViewState(), STEPS, "light")
    marks = figure["data"][-1]
    assert marks["x"] == [25.0, 50.0, 75.0, 100.0]
    assert marks["y"][-1] == pytest.approx(2.25, abs=1e-3)


def test_external_candidates_named_like_an_optimizer_look_like_it_and_no_other_has_its_hue():
    looks = external_styles(["AdamW", "mine", "adapm", "ours", "adamw"])
    assert (looks["adapm"], looks["AdamW"]) == (style("adapm"), style("adamw"))
    assert len({(look.hue, look.dash) for look in looks.values()}) == 5, "AdamW and adamw are told apart"
    assert {looks["mine"].hue, looks["ours"].hue}.isdisjoint({"slate", "blue"})


def test_axes_span_the_budget_and_the_losses_after_the_steep_fall():
    layout = loss_curves([curve(until=40)], ViewState(), STEPS, "light")["layout"]
    assert layout["xaxis"]["range"] == [0.0, pytest.approx(1.015 * STEPS)]
    assert 2.2 < layout["yaxis"]["range"][1] < 4.5, "the untrained loss is 5.5"


def test_a_diverging_run_does_not_set_the_loss_axis():
    figure = loss_curves([curve(), curve("adamw", "AdamW", diverges=True)], ViewState(), STEPS, "light")
    assert figure["layout"]["yaxis"]["range"][1] < 7


@pytest.mark.parametrize("log", [False, True])
def test_losses_below_zero_are_all_in_sight(log):
    """A reward's negative falls from -0.3 to -0.5 while training losses lie elsewhere; there is no logarithm of it."""
    fallen = curve(seeds=1)
    seeds = [replace(run, train_loss=0.2 + 0.05 * (run.train_loss - 2.2), val_loss=-0.5 + 0.05 * (run.val_loss - 2.2))
             for run in fallen.seeds]  # fmt: skip
    figure = loss_curves([replace(fallen, seeds=tuple(seeds))], ViewState(log=log), STEPS, "light")
    low, high = figure["layout"]["yaxis"]["range"]
    assert low < seeds[0].val_loss[-1] < seeds[0].train_loss[-1] < high
    assert figure["layout"]["yaxis"].get("type") != "log"


def test_a_curve_answers_wherever_it_is_pointed_at():
    """Evaluations alone are a few points of the axis."""
    data = loss_curves([curve(seeds=3)], ViewState(), STEPS, "light")["data"]
    steps = {x for trace in data if trace.get("hoverinfo") != "skip" for x in trace["x"] if x is not None}
    assert steps >= set(range(1, STEPS + 1))
