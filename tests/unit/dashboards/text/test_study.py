"""A claim's bound in the words of its row; claims counted by whose they are."""

import re
from pathlib import Path

import pytest

from dashboards.text.study import HEAD, bound_text, claim_counts
from orchestrator.studies.claims import Measure
from orchestrator.studies.registry import study
from orchestrator.studies.reports import summary
from tests.architecture.tree import REPOSITORY


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


def test_a_loss_that_the_summary_tells_stands_in_a_table_of_results() -> None:
    """The summary is written by hand: a result that changes has to change it."""
    pages = [(REPOSITORY / "docs" / name).read_text(encoding="utf-8") for name in ("reproduction.md", "adapm.md")]
    rows = [line for page in pages for line in page.splitlines() if line.startswith("|")]
    losses = re.findall(r"\b0\.\d{3}\b", HEAD)
    assert len(losses) > 5
    assert [loss for loss in losses if not any(loss in row for row in rows)] == []
