"""The axis that SCALE normalises, and the layer with momentum, in real models."""

from optim.builder import build
from worker.checks.tiny_models import tiny_gpt2, tiny_llama


def placed(model) -> dict[str, tuple[int | None, bool]]:
    groups = build("scale", model, lr=0.01).param_groups
    return {name: (group["output_axis"], group["last"]) for group in groups for name in group["param_names"]}


def test_a_llama_normalises_rows_of_linear_maps_and_columns_of_its_embedding():
    axes = placed(tiny_llama())
    assert axes["model.embed_tokens.weight"] == (1, False)
    assert axes["lm_head.weight"] == (0, True)
    assert axes["model.norm.weight"] == (None, False)
    assert axes["model.layers.0.self_attn.q_proj.weight"] == axes["model.layers.0.mlp.down_proj.weight"] == (0, False)


def test_a_gpt2_normalises_columns_and_its_tied_embedding_is_the_last_layer():
    axes = placed(tiny_gpt2())
    assert axes["transformer.wte.weight"] == (0, True)
    assert axes["transformer.wpe.weight"] == (1, False)
    assert axes["transformer.h.0.attn.c_attn.weight"] == (1, False)
