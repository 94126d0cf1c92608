"""The catalog of models: as many parameters as published, heads tied as they are trained."""

import pytest
from transformers.modeling_utils import PreTrainedModel

from worker.catalog import presets
from worker.models import outline_model, parameter_counts


def gpt2(layers: int, width: int) -> int:
    """12 d^2 + 13 d a layer, the last norm, tokens and positions; the head is tied."""
    return layers * (12 * width**2 + 13 * width) + 2 * width + (50257 + 1024) * width


def llama(layers: int, width: int, inner: int, *, heads: int = 2) -> int:
    """4 d^2 + 3 d f + 2 d a layer, the last norm, and as many tables of 32,000 tokens as said."""
    return layers * (4 * width**2 + 3 * width * inner + 2 * width) + width + heads * 32000 * width


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("gpt2-40m", gpt2(12, 384)),
        # The weights that OpenAI published, as Hugging Face counts them.
        ("gpt2-124m", 124_439_808),
        ("gpt2-355m", 354_823_168),
        ("gpt2-774m", 774_030_080),
        ("gpt2-1.5b", 1_557_611_200),
        ("llama-60m", llama(8, 512, 1376)),
        ("llama-130m", llama(12, 768, 2048)),
        ("llama-340m", llama(24, 1024, 2816, heads=1)),
        ("llama-350m", llama(24, 1024, 2736)),
        ("llama-1b", llama(24, 2048, 5461)),
        # The model card's 8.03 B.
        ("llama3-8b", 8_030_261_248),
    ],
)
def test_a_preset_has_the_published_parameters(name: str, parameters: int) -> None:
    assert parameter_counts(outline_model(name)) == (parameters, 4 * parameters)


@pytest.mark.parametrize("name", presets.names())
def test_heads_are_tied_as_published(name: str) -> None:
    """GPT-2 ties its head; of the Llamas only our 340M does."""
    model = outline_model(name)
    assert isinstance(model, PreTrainedModel)
    tied = model.get_output_embeddings().weight is model.get_input_embeddings().weight
    assert tied == (name.startswith("gpt2") or name == "llama-340m")


def test_an_outline_takes_no_memory() -> None:
    assert all(parameter.is_meta for parameter in outline_model("llama3-8b").parameters())


def test_llama3_has_its_own_rotation_and_grouped_heads() -> None:
    config = outline_model("llama3-8b").config
    assert (config.num_key_value_heads, config.rope_parameters["rope_theta"]) == (8, 500000.0)
    assert config.intermediate_size == 14336
