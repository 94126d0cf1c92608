"""Positions in figures as files: bars beside and on each other, whiskers, dates, names, cells, words."""

from typing import Any

import pytest
from matplotlib.figure import Figure as Drawn

from dashboards.figures.base import layout_of
from dashboards.figures.tradeoffs import loss_by_price
from dashboards.files.vector import Sheet
from dashboards.palette import style
from dashboards.view_state import ViewState
from tests.factories.comparison import made_comparison


def axes_of(figure: dict[str, Any]) -> Any:
    """The first axes of a figure that was drawn."""
    drawn = Drawn(figsize=(7, 4))
    Sheet(drawn, figure, "light", "").draw()
    return drawn.axes[0]


def stacked_bars() -> Any:
    """Two traces of two lying bars each, of 1 and 2, and of 3 and 4."""
    data = [
        {"type": "bar", "name": name, "marker": {"color": "#123456"}, "width": 0.6, "x": values, "y": ["a", "b"]}
        for name, values in (("first", [1, 2]), ("second", [3, 4]))
    ]
    return axes_of({"data": data, "layout": layout_of("light", x_title="", y_title="")})


def corners(axes: Any) -> list[tuple[float, float, float, float]]:
    """x, y, width, height of every bar."""
    return [
        tuple(round(value, 6) for value in (p.get_x(), p.get_y(), p.get_width(), p.get_height())) for p in axes.patches
    ]


def test_stacked_bars_begin_where_the_one_before_ends():
    assert corners(stacked_bars()) == [
        (0, -0.3, 1, 0.6), (0, 0.7, 2, 0.6), (1, -0.3, 3, 0.6), (2, 0.7, 4, 0.6),
    ]  # fmt: skip


def test_an_interval_that_is_given_once_lies_to_both_sides():
    comparison = made_comparison()
    styles = {row.candidate: style(row.optimizer) for row in comparison.rows}
    axes = axes_of(loss_by_price(comparison, styles, ViewState(), "light", "memory"))
    whiskers = [
        path.vertices[:, 1] for line in axes.collections for path in line.get_paths() if len(path.vertices) == 2
    ]
    means = sorted(row.val_loss.mean for row in comparison.rows if row.val_loss)
    assert sorted(sum(ends) / 2 for ends in whiskers) == pytest.approx(means)


def test_a_long_legend_stays_on_the_sheet():
    comparison = made_comparison()
    rows = [
        row.model_copy(update={"candidate": f"{row.candidate}-{copy}", "title": f"{row.title} number {copy}"})
        for row in comparison.rows
        for copy in range(12)
    ]
    crowd = comparison.model_copy(update={"rows": tuple(rows)})
    styles = {row.candidate: style("adamw") for row in rows}
    axes = axes_of(loss_by_price(crowd, styles, ViewState(), "light", "memory"))
    legend = axes.get_legend()
    assert sorted(text.get_text() for text in legend.get_texts()) == sorted(row.title for row in rows)
    extent, sheet = legend.get_window_extent(), axes.figure.bbox
    assert extent.x1 <= sheet.width and extent.y1 <= sheet.height


@pytest.mark.parametrize(("losses", "least"), [([2.1, 2.6, 4.9], 3), ([0.3, 30.0, 400.0], 4)])
def test_logarithmic_axes_have_plain_numbers(losses: list[float], least: int) -> None:
    """Within a decade and over several; matplotlib's own are formulas."""
    layout = layout_of("light", x_title="step", y_title="loss")
    layout["yaxis"] |= {"type": "log"}
    axes = axes_of({"data": [{"type": "scatter", "mode": "lines", "x": [1, 2, 3], "y": losses}], "layout": layout})
    axes.figure.canvas.draw()
    low, high = axes.get_ylim()
    texts = [
        label.get_text()
        for label, tick in zip(axes.get_yticklabels(), axes.get_yticks(), strict=True)
        if low <= tick <= high
    ]
    assert len(texts) >= least and all(float(text) > 0 for text in texts)
