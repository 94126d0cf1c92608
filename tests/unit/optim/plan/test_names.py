"""Facts from names and shapes without a model, and their limits."""

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from optim.errors import UnplacedWeightsError
from optim.plan.blocks import ADAM_MINI_SECOND_MOMENTS, BlockKind, FirstMoment
from optim.plan.placement import plan_blocks
from tests.factories.nanogpt import NanoGPT
from tests.plans.architectures import outline

NAMED = (
    *("gpt2-cross-attention", "llama", "gemma3", "phi3", "mixtral", "qwen2-moe", "gpt-oss", "bert-pretraining"),
    *("t5", "lora"),
)


def shapes(**sizes: tuple[int, ...]) -> dict[str, Tensor]:
    """Parameters on `meta`; `__` in a keyword stands for a dot."""
    return {
        f"{name.replace('__', '.')}.weight": nn.Parameter(torch.empty(shape, device="meta"))
        for name, shape in sizes.items()
    }


def kinds(parameters: Mapping[str, Tensor], **options: Any) -> dict[str, str]:
    return {block.name: str(block.kind) for block in plan_blocks(parameters, **options)}


@pytest.mark.parametrize("name", NAMED)
def test_names_and_shapes_give_the_models_own_plan_and_the_number_of_heads_adam_minis(name: str):
    model = outline(name)
    named = dict(model.named_parameters())
    assert plan_blocks(named) == plan_blocks(model)
    by_heads = plan_blocks(named, heads=4, second_moments=ADAM_MINI_SECOND_MOMENTS)
    assert by_heads == plan_blocks(model, second_moments=ADAM_MINI_SECOND_MOMENTS)


def test_nanogpts_maps_are_told_from_hugging_faces_by_their_shapes():
    with torch.device("meta"):
        model = NanoGPT()
    assert plan_blocks(dict(model.named_parameters())) == plan_blocks(model)


def test_llamas_own_names_are_known():
    layer = {"layers__0__attention__wq": (32, 32), "layers__0__attention__wk": (16, 32)}
    other_maps = {"layers__0__attention__wv": (16, 32), "layers__0__attention__wo": (32, 32)}
    mlp = {f"layers__0__feed_forward__w{i}": (32, 80) if i == 2 else (80, 32) for i in (1, 2, 3)}
    kind_by_name = kinds(shapes(tok_embeddings=(64, 32), **layer, **other_maps, **mlp, norm=(32,), output=(64, 32)))
    assert list(kind_by_name.values()) == [
        *("embedding", "query", "key", "value", "attention_output", "mlp", "mlp", "mlp", "vector", "lm_head")
    ]


def test_nanochats_names_are_known_and_never_turned():
    attention = {f"h__0__attn__{name}": (32, 32) for name in ("c_q", "c_k", "c_v", "c_proj")}
    mlp = {"h__0__mlp__c_fc": (128, 32), "h__0__mlp__c_proj": (32, 128)}
    plan = plan_blocks(shapes(wte=(64, 32), **attention, **mlp))
    assert [str(block.kind) for block in plan] == [
        *("embedding", "query", "key", "value", "attention_output", "mlp", "mlp")
    ]
    assert {block.output_axis for block in plan} == {0}


@pytest.mark.parametrize(
    ("name", "weight"),
    [("codegen", "attn.qkv_proj"), ("gpt-neox", "attention.query_key_value"), ("bloom", "query_key_value"),
     ("minimax", "self_attn.qkv_proj")],
)  # fmt: skip
def test_fused_maps_in_another_order_are_refused(name: str, weight: str):
    named = dict(outline(name).named_parameters())
    with pytest.raises(UnplacedWeightsError, match=rf"{weight}\.weight \(96, 32\)"):
        plan_blocks(named, unknown="error")
    plan = plan_blocks(named, unknown="full")
    (fused,) = next(blocks for full, blocks in plan.parameter_blocks.items() if full.endswith(f"{weight}.weight"))
    assert (fused.kind, fused.part, fused.first_moment) == (BlockKind.OTHER, None, FirstMoment.FULL)


def test_names_that_are_not_known_are_all_named_in_one_error():
    parameters = shapes(mix__a=(80, 32), attn__q_proj=(32, 32), attn__k_proj=(16, 32), attn__v_proj=(16, 32))
    parameters |= shapes(conv=(4, 4, 3))
    with pytest.raises(UnplacedWeightsError, match=r"mix\.a\.weight \(80, 32\), conv\.weight \(4, 4, 3\)"):
        plan_blocks(parameters, unknown="error")
    with pytest.raises(UnplacedWeightsError, match=r"heads=.*attn\.q_proj\.weight, attn\.k_proj\.weight"):
        plan_blocks(parameters, second_moments=ADAM_MINI_SECOND_MOMENTS, unknown="full")


@pytest.mark.parametrize(
    "parameters",
    [
        shapes(h__c_fc=(32, 128), h__c_proj=(128, 32)),  # nothing tells which way round they are kept
        shapes(self_attn__qkv_proj=(96, 32)),  # nothing tells how wide the query is
    ],
)
def test_maps_of_which_shapes_do_not_tell_enough_are_unknown(parameters: dict[str, Tensor]):
    plan = plan_blocks(parameters, unknown="full")
    assert {block.kind for block in plan} == {BlockKind.OTHER}


@pytest.mark.parametrize("heads", [3, 64])
def test_a_number_of_heads_that_does_not_divide_the_query_is_refused(heads: int):
    parameters = shapes(attn__q_proj=(32, 32), attn__k_proj=(16, 32), attn__v_proj=(16, 32), attn__o_proj=(32, 32))
    parameters |= {"cross.in_proj_weight": nn.Parameter(torch.empty(96, 32, device="meta"))}
    with pytest.raises(UnplacedWeightsError, match=r"attn\.q_proj\.weight \(32, 32\), .*cross\.in_proj_weight"):
        plan_blocks(parameters, heads=heads, unknown="error")


@pytest.mark.parametrize("heads", [0, -2])
def test_no_heads_at_all_are_refused(heads: int):
    with pytest.raises(ValueError, match=rf"Invalid heads: {heads}; it is the number of query heads, at least 1"):
        plan_blocks(shapes(wte=(64, 32)), heads=heads)


def test_frozen_parameters_get_no_block_but_tell_what_the_others_are():
    parameters = shapes(embed_tokens=(64, 32), lm_head=(64, 32))
    parameters["embed_tokens.weight"].requires_grad_(False)
    assert kinds(parameters) == {"lm_head.weight": "lm_head"}
