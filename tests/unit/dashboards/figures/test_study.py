"""The figure of a finding: intervals that need not lie evenly, the paper's marks, and nothing to draw."""

import pytest

from dashboards.figures.study import study_figure
from orchestrator.studies.claims import ClaimVerdict, Finding, Measure


def finding(*measures: Measure) -> Finding:
    return Finding(answer=ClaimVerdict.SUPPORTED, sentence=".", measures=measures)


def test_a_row_a_measure_with_its_whiskers_and_the_papers_mark() -> None:
    drawn = study_figure(
        finding(
            Measure(name="a <b>", value=2.0, low=1.5, high=3.0, claimed=2.5),
            Measure(name="no figure", value=None),
            Measure(name="no interval", value=1.0),
        ),
        "nats",
        "light",
    )
    ours, papers = drawn["data"]
    assert ours["x"] == [2.0, 1.0]
    assert ours["y"] == ["a &lt;b&gt;", "no interval"]
    assert (ours["error_x"]["array"], ours["error_x"]["arrayminus"]) == ([1.0, 0.0], [0.5, 0.0])
    assert (papers["x"], papers["y"]) == ([2.5], ["a &lt;b&gt;"])


def test_an_interval_with_one_known_end_goes_on_as_far_as_anything_is_drawn() -> None:
    drawn = study_figure(
        finding(
            Measure(name="a", value=1.5, high=1.6, claimed=0.8),
            Measure(name="b", value=1.2, low=1.1),
            Measure(name="c", value=1.0),
        ),
        "times",
        "light",
    )
    bars = drawn["data"][0]["error_x"]
    assert bars["array"] == pytest.approx([0.1, 0.4, 0.0])
    assert bars["arrayminus"] == pytest.approx([0.7, 0.1, 0.0])


def rows_of(*names: str, axis: str = "claimed figures") -> tuple[list[str], str]:
    """The rows' names and the axis's title, without breaks of lines."""
    drawn = study_figure(finding(*(Measure(name=name, value=1.0) for name in names)), axis, "light")
    title = drawn["layout"]["xaxis"]["title"]["text"]
    return [name.replace("<br>", " ") for name in drawn["data"][0]["y"]], title.replace("<br>", " ")


def test_rows_are_named_by_what_tells_them_apart() -> None:
    quantity = "loss minus AdamW's"
    names, title = rows_of(*(f"{who}, {quantity}, gpt2-{size}" for who in ("AdaPM", "GaLore") for size in ("a", "b")))
    assert names == ["AdaPM, gpt2-a", "AdaPM, gpt2-b", "GaLore, gpt2-a", "GaLore, gpt2-b"]
    assert title == f"claimed figures: {quantity}, nats"
    long = [f"a partition that is told at length and with number {number}" for number in range(9)]
    assert rows_of(*long)[0] == long, "no name is cut, lest two rows become one"


def test_quantities_of_unequal_units_never_share_an_axis() -> None:
    measures = [
        Measure(name="AdaPM-mini, loss minus AdamW's", value=0.01, claimed=0.0),
        Measure(name="AdaPM-mini, optimizer state by AdamW's", value=0.075),
        Measure(name="GaLore, loss minus AdamW's", value=0.02),
    ]
    drawn = study_figure(finding(*measures), "claimed figures", "light")
    layout = drawn["layout"]
    shown = [(trace["xaxis"], trace["x"]) for trace in drawn["data"]]
    assert shown == [("x", [0.01, 0.02]), ("x", [0.0]), ("x2", [0.075]), ("x2", [])]
    assert layout["xaxis"]["title"]["text"].endswith("nats")
    assert layout["xaxis2"]["title"]["text"] == "ratio of bytes"
    assert layout["yaxis"]["domain"][0] > layout["yaxis2"]["domain"][1], "one above the other"
    assert sum(trace["showlegend"] for trace in drawn["data"]) == 2
