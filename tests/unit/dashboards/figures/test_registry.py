"""The table of figures: names, pages and types agree."""

from typing import get_args

import pytest

from dashboards.figures.registry import (
    BY_SNAPSHOT,
    COMPARISON_FIGURES,
    LAW_FIGURES,
    SWEEP_FIGURES,
    ComparisonFigure,
    LawFigure,
    SweepFigure,
    page_figures,
)
from orchestrator.kinds.experiment import AnswerKind


@pytest.mark.parametrize(
    ("table", "names"),
    [(COMPARISON_FIGURES, ComparisonFigure), (LAW_FIGURES, LawFigure), (SWEEP_FIGURES, SweepFigure)],
)
def test_addresses_take_the_names_of_the_table(table, names):
    assert {entry.name for entry in table} == set(get_args(names))


def test_a_former_name_leads_to_the_figure_but_is_not_listed():
    old, new = BY_SNAPSHOT["pareto"], BY_SNAPSHOT["loss-memory"]
    assert (old.title, old.draw) == (new.title, new.draw)
    assert [entry.name for entry in page_figures(AnswerKind.COMPARISON)].count("pareto") == 0
