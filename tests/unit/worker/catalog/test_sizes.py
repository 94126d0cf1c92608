"""Parameters counted from dimensions are those of the real models."""

import pytest

from worker.catalog import presets
from worker.catalog.presets import parameter_count
from worker.models import outline_model, parameter_counts


@pytest.mark.parametrize("name", presets.names())
def test_a_presets_parameters_are_those_of_its_model(name: str) -> None:
    assert parameter_count(presets.preset(name)) == parameter_counts(outline_model(name))[0]


def test_the_tokenizers_vocabulary_counts_where_the_preset_follows_it() -> None:
    """Each further token is a row of the embedding, which the tied head shares."""
    tiny, small = presets.preset("gpt2-tiny"), presets.preset("gpt2-124m")
    assert parameter_count(tiny, 1256) - parameter_count(tiny, 256) == 1000 * tiny.hidden_size
    assert parameter_count(small, 256) == parameter_count(small)
