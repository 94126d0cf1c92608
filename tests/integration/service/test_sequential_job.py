"""A sequential comparison through the real service: seeds are trained on Ray until the verdict is there."""

from pathlib import Path

import pytest

from api.bundles.publication import publish
from api.client.client import Client
from orchestrator.kinds.comparison import Candidate, Sequential
from orchestrator.records import Conclusion, SeedsStatus
from tests.factories.bundles import KEY
from tests.integration.small_comparison import small_regression

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1_800)]


def test_a_clear_difference_needs_a_few_of_many_seeds(service_url: str, tmp_path: Path) -> None:
    """SGD at a rate that trains, against one that hardly moves a weight: the first looks decide."""
    spec = small_regression(
        Candidate(optimizer="sgd", learning_rates=(0.2,), label="usual"),
        Candidate(optimizer="sgd", learning_rates=(1e-6,), label="idle"),
        seeds=tuple(range(1, 11)),
        steps=60,  # seeds then differ little: four of them decide, where twenty steps at 0.05 need seven
    ).model_copy(update={"sequential": Sequential()})
    with Client(service_url, timeout_seconds=300) as client:
        assert client.validate(spec).growing
        id = client.submit(spec).experiment.id
        for _ in client.watch(id, pause_seconds=0.3):
            pass
        runs, answer = client.runs(experiment_id=id), client.compare(id)
        assert publish(client, id, tmp_path / "bundle", KEY).document.comparison == answer
    row = next(row for row in answer.rows if not row.is_baseline)
    assert row.conclusion is Conclusion.WORSE
    assert row.seeds_used is not None
    assert row.seeds_used.status is SeedsStatus.DECIDED
    assert 3 <= row.seeds_used.seeds < 10
    assert row.seeds_used.looks == row.seeds_used.seeds - 2
    seeds = list(range(1, row.seeds_used.seeds + 1))
    for name in ("usual", "idle"):
        assert sorted(run.seed for run in runs if run.candidate == name) == seeds
    assert answer.complete
