"""The catalog of models: as many parameters as published, heads tied as they are trained, built without a trace."""

import random

import pytest
import torch
from transformers.modeling_utils import PreTrainedModel

from worker.catalog import presets
from worker.catalog.presets import parameter_count
from worker.models import build_model, outline_model, parameter_counts


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
    assert parameter_count(presets.preset(name)) == parameters


@pytest.mark.parametrize("name", presets.names())
def test_an_outline_has_the_presets_parameters_no_memory_and_its_head_tied_as_published(name: str) -> None:
    """GPT-2 ties its head; of the Llamas only our 340M does."""
    model, count = outline_model(name), parameter_count(presets.preset(name))
    assert isinstance(model, PreTrainedModel)
    assert parameter_counts(model) == (count, 4 * count)
    assert all(parameter.is_meta for parameter in model.parameters())
    tied = model.get_output_embeddings().weight is model.get_input_embeddings().weight
    assert tied == (name.startswith("gpt2") or name == "llama-340m")


def test_llama3_has_its_own_rotation_and_grouped_heads() -> None:
    config = outline_model("llama3-8b").config
    assert (config.num_key_value_heads, config.rope_parameters["rope_theta"]) == (8, 500000.0)
    assert config.intermediate_size == 14336


def test_the_tokenizers_vocabulary_counts_where_the_preset_follows_it() -> None:
    """Each further token is a row of the embedding, which the tied head shares."""
    tiny, small = presets.preset("gpt2-tiny"), presets.preset("gpt2-124m")
    assert parameter_count(tiny, 1256) - parameter_count(tiny, 256) == 1000 * tiny.hidden_size
    assert parameter_count(small, 256) == parameter_count(small)


def test_building_leaves_the_global_random_states_as_found() -> None:
    """torch's and Python's generators are where they were."""
    states = torch.get_rng_state(), random.getstate()

    build_model("gpt2-tiny", 5)

    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]
