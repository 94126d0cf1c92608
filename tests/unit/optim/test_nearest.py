"""Suggestions for an unknown name."""

import pytest

from optim.catalog import names
from optim.nearest import nearest, unknown


@pytest.mark.parametrize(
    ("written", "meant"),
    [("adamm", "adamw"), ("AdaPM", "adapm"), ("Adam-Mini", "adam-mini"), ("zzz", None), ("", None), (3, None)],
)
def test_the_nearest_name_whatever_its_case(written: object, meant: str | None):
    assert nearest(written, names()) == meant


def test_known_names_follow():
    assert unknown("model", "gpt", ("gpt2", "llama")) == "unknown model 'gpt'; did you mean gpt2? Known: gpt2, llama"
    assert unknown("model", "x", ("gpt2", "llama")) == "unknown model 'x'; known: gpt2, llama"
