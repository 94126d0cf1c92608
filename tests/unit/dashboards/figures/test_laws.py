"""Figures of laws say what they draw, and why there is nothing to draw."""

import pytest

from dashboards.figures.laws import law, residuals
from orchestrator.analysis.laws.records import FitReport
from orchestrator.analysis.statistics import mean_interval
from tests.factories.scaling import MODELS, law_report


def key(fit_report: FitReport) -> str:
    return str(law(fit_report, {}, "light")["layout"]["annotations"][0]["text"]).replace("<br>", " ")


def test_a_law_says_what_is_drawn_and_nothing_else():
    drawn = ("2 seeds", "law", "predictions")
    for fit_report, expected in (
        (law_report(0.08, predict=[(10**7, None)]), (True, True, True)),
        (law_report(0.08), (True, True, False)),
        (law_report(0.0), (True, False, False)),
        (law_report(0.0, seeds=[1]), (False, False, False)),
    ):
        assert tuple(word in key(fit_report) for word in drawn) == expected


def test_points_have_the_interval_of_their_seeds():
    fit_report = law_report(0.08)
    point = fit_report.fits[0].points[0]
    interval = mean_interval([point.loss / 1.0015 * (1 + 1e-3 * seed) for seed in (1, 2)])
    assert interval is not None and (point.low, point.high) == pytest.approx((interval.low, interval.high))
    drawn = next(trace for trace in law(fit_report, {}, "light")["data"] if trace["mode"] == "markers")
    assert drawn["error_y"]["array"][0] == pytest.approx((point.high or 0.0) - point.loss)
    traces = law(law_report(0.08, seeds=[1]), {}, "light")["data"]
    assert not any("error_y" in trace for trace in traces)


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (law_report(0.0), "verdicts"),
        (law_report(0.08, models=MODELS[:1]), "1 model size"),
    ],
)
def test_without_a_law_the_residuals_say_why(found, reason):
    drawn = residuals(found, {}, "light")
    assert drawn["data"] == []
    assert reason in drawn["layout"]["annotations"][0]["text"].replace("<br>", " ")
