"""The table of figures: names, pages and types agree."""

from typing import get_args

import pytest

from dashboards.figures.registry import (
    COMPARISON_FIGURES,
    LAW_FIGURES,
    SWEEP_FIGURES,
    ComparisonFigure,
    LawFigure,
    SweepFigure,
)


@pytest.mark.parametrize(
    ("table", "names"),
    [(COMPARISON_FIGURES, ComparisonFigure), (LAW_FIGURES, LawFigure), (SWEEP_FIGURES, SweepFigure)],
)
def test_addresses_take_the_names_of_the_table(table, names):
    assert {entry.name for entry in table} == set(get_args(names))
