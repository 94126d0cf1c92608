"""The figure of a finding: intervals that need not lie evenly, the paper's marks, and nothing to draw."""

from dashboards.figures.study import study_figure
from orchestrator.studies.findings import ClaimVerdict, Finding, Measure


def finding(*measures: Measure) -> Finding:
    return Finding(
        answer=ClaimVerdict.HOLDS, measured=ClaimVerdict.HOLDS, sentence=".", measures=measures, notes=(), machines=()
    )


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


def test_nothing_to_draw_is_a_sentence() -> None:
    for empty in (None, finding(), finding(Measure(name="x", value=None))):
        drawn = study_figure(empty, "nats", "dark")
        assert drawn["data"] == []
        assert drawn["layout"]["annotations"][0]["text"].startswith("Measured values will appear")
