"""Requests for the service's part of an imported run have a size that it answers."""

from api.client.own_runs import MOST_METRICS
from api.imports.transfer import _metric_groups
from orchestrator.external_runs import MOST_VALUES, MetricSummary
from tests.factories.external_runs import external_run


def groups(points: dict[str, int]) -> list[list[str]]:
    run = external_run("muon", 0.1, 1, 2.0)
    (summary,) = run.metrics.values()
    metrics: dict[str, MetricSummary] = {
        name: summary.model_copy(update={"points": count}) for name, count in points.items()
    }
    return list(_metric_groups(run.model_copy(update={"metrics": metrics})))


def test_the_metrics_of_a_long_run_are_asked_for_in_several_answers() -> None:
    assert groups({}) == []
    assert groups({"a": MOST_VALUES, "b": 1, "c": MOST_VALUES - 1, "d": 1}) == [["a"], ["b", "c"], ["d"]]
    assert [len(names) for names in groups({f"{n}": 1 for n in range(2 * MOST_METRICS + 5)})] == [
        MOST_METRICS,
        MOST_METRICS,
        5,
    ]
