"""A claim's bound in the words of its row."""

import pytest

from dashboards.text.study import bound_text
from orchestrator.studies.claims import Measure


@pytest.mark.parametrize(
    ("metric", "least", "most", "words"),
    [
        ("loss_difference", None, 0.01, "at most 0.01 higher"),
        ("loss_difference", None, -0.1, "at least 0.1 lower"),
        ("loss_difference", 0.0, None, "not lower"),
        ("loss_difference", 0.1, None, "at least 0.1 higher"),
        ("loss_difference", -0.01, 0.0, "at most 0.01 lower and not higher"),
        ("state_share", None, 0.6, "at most 0.6"),
    ],
)
def test_a_bound_on_a_difference_says_which_way(
    metric: str, least: float | None, most: float | None, words: str
) -> None:
    measure = Measure(name="m", value=0.0, metric=metric, at_least=least, at_most=most)
    assert bound_text(measure) == words
