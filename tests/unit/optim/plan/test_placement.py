"""The block plan of real models: every weight in its place, or named in one error."""

from typing import Any

import pytest
import torch
from torch import nn
from transformers.models.llama.configuration_llama import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaForCausalLM

from optim.errors import UnplacedWeightsError
from optim.plan.blocks import ADAM_MINI_SECOND_MOMENTS, Block, BlockKind, FirstMoment, SecondMoment, Slice
from optim.plan.placement import plan_blocks
from worker.checks.tiny_models import tiny_gpt2, tiny_llama


def record(parameter: str, kind: BlockKind, shape: tuple[int, ...], second: SecondMoment, **fields: Any) -> Block:
    return Block(
        **{
            "parameter": parameter,
            "kind": kind,
            "shape": shape,
            "first_moment": FirstMoment.NONE,
            "second_moment": second,
            "state_dtype": torch.float32,
            **fields,
        }
    )


def vector(parameter: str, size: int) -> Block:
    return record(parameter, BlockKind.VECTOR, (size,), SecondMoment.ELEMENT, first_moment=FirstMoment.FULL)


def low_rank(rank: int) -> dict[str, Any]:
    return {"first_moment": FirstMoment.LOW_RANK, "rank": rank}


def gpt2_layer(path: str) -> list[Block]:
    fused = f"{path}.attn.c_attn.weight"
    return [
        vector(f"{path}.ln_1.weight", 32),
        vector(f"{path}.ln_1.bias", 32),
        *(
            record(
                fused,
                kind,
                (32, 32),
                SecondMoment.HEAD,
                **low_rank(2),
                output_axis=1,
                head_size=16,
                part=Slice(axis=1, start=start, length=32),
            )
            for kind, start in ((BlockKind.QUERY, 0), (BlockKind.KEY, 32))
        ),
        record(
            fused,
            BlockKind.VALUE,
            (32, 32),
            SecondMoment.NEURON,
            first_moment=FirstMoment.FULL,
            output_axis=1,
            part=Slice(axis=1, start=64, length=32),
        ),
        vector(f"{path}.attn.c_attn.bias", 96),
        record(f"{path}.attn.c_proj.weight", BlockKind.ATTENTION_OUTPUT, (32, 32), SecondMoment.NEURON, output_axis=1),
        vector(f"{path}.attn.c_proj.bias", 32),
        vector(f"{path}.ln_2.weight", 32),
        vector(f"{path}.ln_2.bias", 32),
        record(f"{path}.mlp.c_fc.weight", BlockKind.MLP, (32, 128), SecondMoment.NEURON, **low_rank(2), output_axis=1),
        vector(f"{path}.mlp.c_fc.bias", 128),
        record(
            f"{path}.mlp.c_proj.weight", BlockKind.MLP, (128, 32), SecondMoment.NEURON, **low_rank(2), output_axis=1
        ),
        vector(f"{path}.mlp.c_proj.bias", 32),
    ]


def test_gpt2_with_fused_attention_stored_in_by_out_and_a_tied_head():
    plan = plan_blocks(tiny_gpt2(), second_moments=ADAM_MINI_SECOND_MOMENTS)
    assert list(plan) == [
        record("transformer.wte.weight", BlockKind.EMBEDDING, (64, 32), SecondMoment.ROW),
        record("transformer.wpe.weight", BlockKind.EMBEDDING, (32, 32), SecondMoment.ROW),
        *gpt2_layer("transformer.h.0"),
        *gpt2_layer("transformer.h.1"),
        vector("transformer.ln_f.weight", 32),
        vector("transformer.ln_f.bias", 32),
    ]


def llama_blocks() -> list[Block]:
    layer = "model.layers.0"
    return [
        record("model.embed_tokens.weight", BlockKind.EMBEDDING, (64, 32), SecondMoment.ROW),
        record(
            f"{layer}.self_attn.q_proj.weight",
            BlockKind.QUERY,
            (32, 32),
            SecondMoment.HEAD,
            **low_rank(2),
            head_size=8,
        ),
        record(
            f"{layer}.self_attn.k_proj.weight", BlockKind.KEY, (16, 32), SecondMoment.HEAD, **low_rank(1), head_size=8
        ),
        record(
            f"{layer}.self_attn.v_proj.weight",
            BlockKind.VALUE,
            (16, 32),
            SecondMoment.NEURON,
            first_moment=FirstMoment.FULL,
        ),
        record(f"{layer}.self_attn.o_proj.weight", BlockKind.ATTENTION_OUTPUT, (32, 32), SecondMoment.NEURON),
        record(f"{layer}.mlp.gate_proj.weight", BlockKind.MLP, (80, 32), SecondMoment.NEURON, **low_rank(2)),
        record(f"{layer}.mlp.up_proj.weight", BlockKind.MLP, (80, 32), SecondMoment.NEURON, **low_rank(2)),
        record(f"{layer}.mlp.down_proj.weight", BlockKind.MLP, (32, 80), SecondMoment.NEURON, **low_rank(2)),
        vector(f"{layer}.input_layernorm.weight", 32),
        vector(f"{layer}.post_attention_layernorm.weight", 32),
        vector("model.norm.weight", 32),
    ]


def test_llama_with_separate_projections_grouped_queries_and_an_untied_head():
    plan = plan_blocks(tiny_llama(), second_moments=ADAM_MINI_SECOND_MOMENTS)
    head = record("lm_head.weight", BlockKind.LM_HEAD, (64, 32), SecondMoment.ROW)
    assert list(plan) == [*llama_blocks(), head]
    tied = plan_blocks(tiny_llama(tied=True), second_moments=ADAM_MINI_SECOND_MOMENTS)
    assert list(tied) == llama_blocks(), "a tied head is planned once, as the embedding"


def test_heads_wider_than_the_model_are_measured_by_their_own_size():
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=80,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=24,
    )
    with torch.device("meta"):
        plan = plan_blocks(LlamaForCausalLM(config), second_moments=ADAM_MINI_SECOND_MOMENTS)
    query, key = plan.by_parameter["model.layers.0.self_attn.q_proj.weight"][0], plan.blocks[2]
    assert (query.shape, query.head_size, query.state_shapes["exp_avg_sq"]) == ((96, 32), 24, (4,))
    assert (key.shape, key.head_size, key.state_shapes["exp_avg_sq"]) == ((48, 32), 24, (2,))


class CausalSelfAttention(nn.Module):
    """nanoGPT's attention: the fused projection is an `nn.Linear`, stored out × in."""

    def __init__(self) -> None:
        super().__init__()
        self.c_attn = nn.Linear(32, 96, bias=False)
        self.c_proj = nn.Linear(32, 32, bias=False)
        self.n_head = 4


class NanoGPT(nn.Module):
    """The weights of a one-layer nanoGPT."""

    def __init__(self) -> None:
        super().__init__()
        self.wte = nn.Embedding(64, 32)
        self.attn = CausalSelfAttention()
        self.lm_head = nn.Linear(32, 64, bias=False)


def test_a_fused_linear_is_split_along_its_rows():
    plan = plan_blocks(NanoGPT(), second_moments=ADAM_MINI_SECOND_MOMENTS)
    assert [(block.name, block.shape, block.part, block.output_axis, block.head_size) for block in plan] == [
        ("wte.weight", (64, 32), None, 0, 1),
        ("attn.c_attn.weight:query", (32, 32), Slice(axis=0, start=0, length=32), 0, 8),
        ("attn.c_attn.weight:key", (32, 32), Slice(axis=0, start=32, length=32), 0, 8),
        ("attn.c_attn.weight:value", (32, 32), Slice(axis=0, start=64, length=32), 0, 1),
        ("attn.c_proj.weight", (32, 32), None, 0, 1),
        ("lm_head.weight", (64, 32), None, 0, 1),
    ]
    assert plan.blocks[-1].kind is BlockKind.LM_HEAD


class Strange(nn.Module):
    """Weights that no rule places: a lone map, raw tensors, a fused projection that does not add up."""

    def __init__(self) -> None:
        super().__init__()
        self.wte = nn.Embedding(64, 32)
        self.mixer = nn.Linear(32, 7)
        self.table = nn.Parameter(torch.zeros(5, 6))
        self.kernel = nn.Parameter(torch.zeros(4, 4, 3))
        self.attn = CausalSelfAttention()
        self.attn.c_attn = nn.Linear(32, 95, bias=False)


UNPLACED = r"table \(5, 6\), kernel \(4, 4, 3\), mixer.weight \(7, 32\), attn.c_attn.weight \(95, 32\)"


def test_weights_that_no_rule_places_are_all_named_in_one_warning_and_keep_adams_moments():
    with pytest.warns(UserWarning, match=UNPLACED):
        plan = plan_blocks(Strange())
    assert plan == plan_blocks(Strange(), unknown="full")
    with pytest.raises(UnplacedWeightsError, match=UNPLACED):
        plan_blocks(Strange(), unknown="error")


def test_unknown_full_keeps_adams_moments_for_them():
    plan = plan_blocks(Strange(), second_moments=ADAM_MINI_SECOND_MOMENTS, unknown="full")
    placed = {block.parameter: (block.kind, block.first_moment, block.second_moment) for block in plan}
    kept = (BlockKind.OTHER, FirstMoment.FULL, SecondMoment.ELEMENT)
    for name in ("table", "mixer.weight", "kernel", "attn.c_attn.weight"):
        assert placed[name] == kept


def test_frozen_weights_need_no_place():
    model = Strange()
    for value in (model.table, model.mixer.weight, model.kernel, model.attn.c_attn.weight):
        value.requires_grad_(False)
    placed = [block.parameter for block in plan_blocks(model)]
    assert placed == ["wte.weight", "mixer.bias", "attn.c_proj.weight"]


@pytest.mark.parametrize(("dtype", "state"), [(torch.bfloat16, torch.float32), (torch.float64, torch.float64)])
def test_state_has_the_parameters_type_but_at_least_float32(dtype, state):
    assert {block.state_dtype for block in plan_blocks(tiny_gpt2(dtype=dtype))} == {state}


def test_a_user_can_choose_other_moments_by_kind():
    """The paper's table 1 compares partitions: here value blocks low rank too."""
    moments = dict.fromkeys(BlockKind, FirstMoment.FULL) | {BlockKind.VALUE: FirstMoment.LOW_RANK}
    plan = plan_blocks(tiny_gpt2(), first_moments=moments)
    assert {block.kind for block in plan if block.first_moment is FirstMoment.LOW_RANK} == {BlockKind.VALUE}
    assert {block.rank for block in plan if block.kind is BlockKind.VALUE} == {2}
