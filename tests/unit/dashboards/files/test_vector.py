"""Figures as files: what is drawn and where, that equal figures are equal files, that names stay letters."""

import csv
import io
import re
import xml.etree.ElementTree as Tree
from typing import Any

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Drawn

from dashboards.figures.base import Figure, layout_of
from dashboards.figures.laws import law, log_ticks, residuals
from dashboards.figures.tradeoffs import loss_by_price
from dashboards.files.figures import Picture, figure_csv, figure_html, script_hash
from dashboards.files.traces import FigureError, VectorFormat, letters
from dashboards.files.vector import Sheet, vector
from dashboards.palette import style, styles
from dashboards.view_state import ViewState
from orchestrator.analysis.laws.records import Estimate, FitReport
from tests.factories.comparison import made_comparison
from tests.factories.scaling import law_report

HOSTILE = "<b>$x_1$</b> & \\frac{1}{2} \N{SNOWMAN}"


@pytest.fixture(scope="module")
def report() -> FitReport:
    """The laws of two candidates, one with a hostile name, predicted at 10 M parameters."""
    return law_report(0.08, predict=[(10**7, None)], label=HOSTILE)


STYLES = styles([("adamw", "adamw"), (HOSTILE, "adapm")])


def line_figure(colour: str = "#000000") -> Figure:
    """A line of two points."""
    line = {"type": "scatter", "mode": "lines", "x": [0, 1], "y": [0.0, 0.0], "line": {"color": colour}}
    return {"data": [line], "layout": {}}


@pytest.mark.parametrize("words", [1, 8, 60])
def test_a_title_stays_on_the_sheet(words: int) -> None:
    title = " ".join(["optimizers"] * words)
    drawn = Drawn(figsize=(7.6, 4.3))
    FigureCanvasAgg(drawn)
    Sheet(drawn, line_figure(), "light", title).draw()
    (text,) = (text for text in drawn.texts if text.get_text().startswith("optimizers"))
    assert text.get_window_extent().x1 <= drawn.bbox.width
    assert text.get_text() == title or (words == 60 and text.get_text().endswith("…"))


@pytest.mark.parametrize("form", ["svg", "png", "pdf"])
def test_equal_figures_are_equal_files(report: FitReport, form: VectorFormat) -> None:
    drawn = [vector(law(report, STYLES, "light"), form, title=HOSTILE) for _ in range(2)]
    assert drawn[0] == drawn[1]
    assert len(drawn[0]) > 5_000


def test_an_svg_is_well_formed_and_holds_nothing_that_runs(report: FitReport) -> None:
    text = vector(residuals(report, STYLES, "dark"), "svg", title=HOSTILE, theme="dark").decode()
    names = {element.tag.partition("}")[2] for element in Tree.fromstring(text).iter()}
    assert "script" not in names and "foreignObject" not in names
    assert not re.search(r'href="(?!#)', text)


def test_an_unknown_kind_of_trace_is_refused() -> None:
    with pytest.raises(FigureError, match="'violin' cannot be drawn as files"):
        vector({"data": [{"type": "violin", "x": [1]}], "layout": {}}, "svg")


def test_markup_becomes_the_letters_that_it_shows() -> None:
    assert letters("<b>a</b> &lt;b&gt;<br>&amp;") == "a <b>\n&"


def test_the_law_has_points_bands_curve_and_predictions(report: FitReport) -> None:
    data = law(report, STYLES, "light")["data"]
    adamw = [trace for trace in data if trace.get("name", "").startswith("AdamW")]
    assert [trace["mode"] for trace in adamw] == ["lines", "markers", "markers"]
    assert adamw[1]["x"] == [81_216, 274_640, 858_880]
    assert adamw[2]["x"] == [10**7] and "error_y" in adamw[2]
    assert sum(trace.get("fill") == "tonexty" for trace in data) == 2
    assert max(adamw[0]["x"]) == 10**7


def test_the_csv_is_safe_for_spreadsheets() -> None:
    figure = {
        "data": [{"type": "scatter", "mode": "lines", "name": "=1+1", "x": [1, 2], "y": [3.5, None]}],
        "layout": {},
    }
    rows = list(csv.DictReader(io.StringIO(figure_csv(figure))))
    assert [(row["name"], row["x"], row["y"]) for row in rows] == [("'=1+1", "1", "3.5"), ("'=1+1", "2", "")]


def test_the_csv_has_whiskers_and_what_stands_in_cells() -> None:
    marks = {"type": "scatter", "mode": "markers", "x": [1], "y": ["a"], "error_x": {"array": [0.5]}}
    cells = {"type": "bar", "x": [0], "y": [1], "base": [2], "customdata": ["block, step 3"], "text": ["0.7"]}
    rows = list(csv.DictReader(io.StringIO(figure_csv({"data": [marks, cells], "layout": {}}))))
    assert (rows[0]["x_minus"], rows[0]["x_plus"], rows[0]["y_minus"]) == ("0.5", "0.5", "")
    assert (rows[1]["label"], rows[1]["text"]) == ("block, step 3", "0.7")


def test_an_html_figure_runs_only_its_own_two_scripts(report: FitReport) -> None:
    text = figure_html(Picture(title=HOSTILE, figure=law(report, STYLES, "light")), "light")
    scripts = re.findall(r"<script>(.*?)</script>", text, flags=re.DOTALL)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert len(scripts) == 2 and policy is not None
    assert all(script_hash(script) in policy[1].replace("&#39;", "'") for script in scripts)
    assert "default-src &#39;none&#39;" in text or "default-src 'none'" in text
    assert HOSTILE not in text


@pytest.mark.parametrize(("low", "high"), [(1e5, 1e9), (2.1, 2.4), (3e4, 9e5), (2.0, 2.0001), (1, 1e30)])
def test_logarithmic_axes_have_a_few_round_ticks(low: float, high: float) -> None:
    ticks = log_ticks(low, high)
    assert 3 <= len(ticks) <= 8
    assert all(low <= tick <= high * 1.0001 for tick in ticks)


def test_intervals_of_a_law_are_drawn_to_their_ends_or_end_in_an_arrow(report):
    drawn = law(report, STYLES, "light")
    low, high = (10**end for end in drawn["layout"]["yaxis"]["range"])
    bands = [trace["y"] for trace in drawn["data"] if "hoverinfo" in trace]
    assert bands and all(low <= value <= high for band in bands for value in band)
    wide = Estimate(value=2.0, low=0.01, high=900.0)
    (fit, *other_fits) = report.fits
    prediction = fit.predictions[0].model_copy(update={"loss": wide})
    unsure = report.model_copy(update={"fits": (fit.model_copy(update={"predictions": (prediction,)}), *other_fits)})
    arrows = [trace for trace in law(unsure, STYLES, "light")["data"] if "extends" in trace.get("hovertemplate", "")]
    assert ["0.01<" in arrows[0]["hovertemplate"], "900<" in arrows[1]["hovertemplate"]] == [True, True]


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
