"""Roles that structure decides, and refusals where it cannot."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from optim.adapm import AdaPM
from optim.errors import UnplacedWeightsError
from optim.plan.blocks import Block, BlockKind, BlockPlan, FirstMoment, SecondMoment, Slice
from optim.plan.placement import plan_blocks
from tests.factories.architectures import mixtral
from tests.plans.architectures import causal


def kinds(model: nn.Module) -> dict[str, str]:
    return {block.name: str(block.kind) for block in plan_blocks(model) if block.kind is not BlockKind.VECTOR}


def test_fused_maps_that_their_table_row_cannot_divide_are_refused():
    """CodeGen groups its heads by fours; names alone, which say nothing of that order, would mislead."""
    with torch.device("meta"):
        codegen = causal("codegen", num_attention_heads=2, n_ctx=34, rotary_dim=4)()
    with pytest.raises(UnplacedWeightsError, match=r"qkv_proj\.weight \(96, 32\)"):
        plan_blocks(codegen, unknown="error")


class PromptEmbedding(nn.Module):
    """Twelve trained vectors, as PEFT keeps them."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(12, 32)


@pytest.mark.parametrize("planned_by", ["model", "names"])
def test_trained_prompts_keep_full_momentum_at_the_full_rate(planned_by):
    """Every step reads all of them; the paper's rule is for tables of tokens, of which a step reads few."""
    model = nn.ModuleDict({"prompt_encoder": nn.ModuleDict({"default": PromptEmbedding()}), "base_model": mixtral()})
    model["base_model"].requires_grad_(False)
    named = dict(model.named_parameters())
    plan = plan_blocks(model) if planned_by == "model" else plan_blocks(named)
    (block,) = plan
    assert (block.parameter, block.kind) == ("prompt_encoder.default.embedding.weight", BlockKind.ADAPTER)
    assert block.first_moment is FirstMoment.FULL


def test_a_weight_with_nothing_in_it_is_a_vector_without_state():
    plan = plan_blocks(nn.ParameterDict({"w": nn.Parameter(torch.zeros(8, 0))}))
    assert [(block.kind, block.state_bytes) for block in plan] == [(BlockKind.VECTOR, 0)]


class Pair(nn.Module):
    """Two maps that lead d → h → d."""

    def __init__(self, names: tuple[str, str], inner: int) -> None:
        super().__init__()
        self.add_module(names[0], nn.Linear(8, inner, bias=False))
        self.add_module(names[1], nn.Linear(inner, 8, bias=False))


def test_an_mlp_is_known_by_its_shapes_whatever_its_names():
    assert kinds(Pair(("there", "back"), 12)) == {"there.weight": "mlp", "back.weight": "mlp"}


def test_an_mlp_as_wide_as_the_model_is_known_by_its_names():
    assert set(kinds(Pair(("fc1", "fc2"), 8)).values()) == {"mlp"}
    with pytest.raises(UnplacedWeightsError, match=r"there.weight \(8, 8\), back.weight"):
        plan_blocks(Pair(("there", "back"), 8), unknown="error")


class ForeignAttention(Pair):
    """Calls itself attention, but its maps are not known: they are no MLP either."""


def test_a_pair_of_maps_in_unknown_attention_is_refused():
    with pytest.raises(UnplacedWeightsError, match="down"):
        plan_blocks(ForeignAttention(("down", "up"), 4), unknown="error")


class AttentionBlock(nn.Module):
    """A layer that calls itself attention, as CLIP's does, and holds an MLP beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.attn = nn.MultiheadAttention(8, 2, bias=False)
        self.mlp = nn.Sequential(nn.Linear(8, 32, bias=False), nn.GELU(), nn.Linear(32, 8, bias=False))


def test_a_layer_named_after_its_attention_may_hold_an_mlp():
    kind_by_name = kinds(nn.ModuleList([AttentionBlock()]))
    assert kind_by_name["0.mlp.0.weight"] == kind_by_name["0.mlp.2.weight"] == "mlp"


class RawPositions(nn.Module):
    """Learned positions as bare parameters: a table, and a batch of one table."""

    def __init__(self) -> None:
        super().__init__()
        self.wpe = nn.Parameter(torch.zeros(6, 8))
        self.pos_embed = nn.Parameter(torch.zeros(1, 6, 8))


def test_learned_positions_may_be_bare_parameters():
    assert kinds(RawPositions()) == {"wpe": "embedding", "pos_embed:0": "embedding"}


class Fused(nn.Module):
    """Grouped queries, keys and values in one map."""

    def __init__(self, query: int, key_value: int, size: int, width: int) -> None:
        super().__init__()
        self.num_heads, self.num_kv_heads, self.head_dim = query, key_value, size
        self.qkv_proj = nn.Linear(width, (query + 2 * key_value) * size, bias=False)


@given(
    key_value=st.integers(1, 4),
    groups=st.integers(1, 4),
    size=st.integers(1, 16),
    width=st.integers(1, 40),
)
def test_a_fused_map_is_covered_once_whatever_its_heads(key_value: int, groups: int, size: int, width: int):
    with torch.device("meta"):
        model = Fused(key_value * groups, key_value, size, width)
    blocks = plan_blocks(model).blocks
    covered = torch.zeros(model.qkv_proj.weight.shape)
    for block in blocks:
        block.view(covered).add_(1)
    assert bool((covered == 1).all())
    assert [block.kind for block in blocks] == [BlockKind.QUERY, BlockKind.KEY, BlockKind.VALUE]
    assert [block.shape[0] for block in blocks] == [key_value * groups * size, key_value * size, key_value * size]


def test_a_block_of_a_stack_steps_as_the_same_matrix_alone():
    """Expert 1's half of a fused stack moves as its own parameter would, and nothing else moves."""
    torch.manual_seed(0)
    stack = nn.Parameter(torch.randn(3, 8, 6))
    matrix = nn.Parameter(stack[1, 4:].detach().clone())
    fields: dict[str, Any] = {
        "kind": BlockKind.MLP,
        "shape": (4, 6),
        "first_moment": FirstMoment.LOW_RANK,
        "second_moment": SecondMoment.NEURON,
        "rank": 2,
        "state_dtype": torch.float32,
    }
    inside = tuple(
        Block(parameter="x", index=index, label=f"{index}.{half}", part=Slice(axis=0, start=start, length=4), **fields)
        for index in range(3)
        for half, start in (("gate", 0), ("up", 4))
    )
    original = stack.detach().clone()
    for parameter, blocks in ((stack, inside), (matrix, (Block(parameter="x", **fields),))):
        optimizer = AdaPM([("x", parameter)], 0.1, plan=BlockPlan(blocks), solver="svd", weight_decay=0.0)
        for step in range(3):
            whole = torch.zeros(3, 8, 6)
            whole[1, 4:] = torch.randn(4, 6, generator=torch.Generator().manual_seed(step))
            parameter.grad = whole if parameter is stack else whole[1, 4:].clone()
            optimizer.step()
    torch.testing.assert_close(stack[1, 4:], matrix)
    stack.data[1, 4:] = original[1, 4:]
    assert torch.equal(stack, original)
