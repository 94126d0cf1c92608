"""The axis that SCALE normalises, and the layer with momentum, in real models."""

from optim.builder import build
from worker.checks.tiny_models import tiny_gpt2, tiny_llama


def placed(model) -> dict[str, tuple[int | None, bool]]:
    groups = build("scale", model, lr=0.01).param_groups
    return {name: (group["output_axis"], group["last"]) for group in groups for name in group["param_names"]}


def test_a_llama_normalises_rows_of_linear_maps_and_columns_of_its_embedding():
    found = placed(tiny_llama())
    assert found["model.embed_tokens.weight"] == (1, False)
    assert found["lm_head.weight"] == (0, True)
    assert found["model.norm.weight"] == (None, False)
    assert found["model.layers.0.self_attn.q_proj.weight"] == found["model.layers.0.mlp.down_proj.weight"] == (0, False)


def test_a_gpt2_normalises_columns_and_its_tied_embedding_is_the_last_layer():
    found = placed(tiny_gpt2())
    assert found["transformer.wte.weight"] == (0, True)
    assert found["transformer.wpe.weight"] == (1, False)
    assert found["transformer.h.0.attn.c_attn.weight"] == (1, False)
