"""A claim's bound in the words of its row; claims counted by whose they are."""

from pathlib import Path

import pytest

from dashboards.text.study import bound_text, claim_counts
from orchestrator.studies.claims import Measure
from orchestrator.studies.registry import study
from orchestrator.studies.reports import summary


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


@pytest.mark.parametrize(
    ("source", "whose"),
    [
        ("figure 4c", "claims of AdaPM's paper"),
        ("Chen et al. 2023, arXiv 2302.06675, abstract", "of other papers"),
        ("beyond the paper", "our own"),
    ],
)
def test_claims_of_other_papers_are_counted_by_themselves(tmp_path: Path, source: str, whose: str) -> None:
    lion = summary(study("lion"), tmp_path).model_copy(update={"source": source})
    assert claim_counts([lion]) == f"1 of 1 studies have a result; {whose}: 1 supported, 1 contradicted."
