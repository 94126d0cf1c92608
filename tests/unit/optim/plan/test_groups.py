"""The groups that optimizers of matrices need, from the planner, and the blocks in them that decay."""

import pytest

from optim.plan import MatrixGroups, matrix_groups
from optim.plan.blocks import BlockKind, FirstMoment
from optim.plan.groups import Weight
from tests.factories.blocks import matrix_block
from tests.plans.architectures import ARCHITECTURES, outline

GROUPS = ("matrices", "embeddings", "heads", "others", "vectors")


def members(groups: MatrixGroups, name: str) -> list[Weight]:
    weights: list[Weight] = getattr(groups, name)
    return weights


def names(groups: MatrixGroups, name: str) -> list[str]:
    return [weight.name for weight in members(groups, name)]


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_trainable_parameter_is_in_one_group(name: str):
    model = outline(name)
    groups = matrix_groups(model)
    member_names = [weight.name for group in GROUPS for weight in members(groups, group)]
    assert sorted(member_names) == sorted(name for name, value in model.named_parameters() if value.requires_grad)
    assert all(weight.value.ndim == 2 + weight.is_stack for weight in groups.matrices)


@pytest.mark.parametrize(
    ("name", "others"),
    [
        ("gpt2", []),
        ("gpt-neox", []),
        ("deepseek-v3", ["model.layers.0.mlp.gate.weight"]),
        ("vit", ["vit.embeddings.patch_embeddings.projection.weight"]),
    ],
)
def test_the_matrices_of_the_layers_are_hidden_and_little_else_is_left(name: str, others: list[str]):
    groups = matrix_groups(outline(name))
    layers = (".h.", ".layers.", ".layer.")
    assert all(any(part in weight.name for part in layers) for weight in groups.matrices)
    assert not [
        weight.name for weight in (*groups.embeddings, *groups.heads) if any(part in weight.name for part in layers)
    ]
    assert names(groups, "others") == others


def test_tied_heads_are_embeddings_and_experts_are_stacks():
    assert names(matrix_groups(outline("gpt2")), "heads") == []
    groups = matrix_groups(outline("mixtral"))
    assert names(groups, "heads") == ["lm_head.weight"]
    assert [weight.name.rpartition(".")[2] for weight in groups.matrices if weight.is_stack] == [
        "gate_up_proj",
        "down_proj",
    ]
    assert {weight.output_axis for weight in matrix_groups(outline("gpt2")).matrices} == {1}


@pytest.mark.parametrize(
    ("kind", "shape", "decays"),
    [
        (BlockKind.MLP, (8, 12), True),
        (BlockKind.VECTOR, (8,), False),
        (BlockKind.VECTOR, (4, 8), False),
        (BlockKind.POSITION_BIAS, (32, 4), False),
    ],
)
def test_vectors_and_biases_never_decay(kind, shape, decays):
    assert matrix_block(shape, kind=kind, first_moment=FirstMoment.FULL).decays is decays
