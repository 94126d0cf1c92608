"""The groups that optimizers of matrices need, from the planner."""

from typing import Any

import pytest
import torch
from torch import nn

from optim.plan import MatrixGroups, matrix_groups
from optim.plan.groups import Weight
from tests.plans.architectures import ARCHITECTURES, outline

GROUPS = ("matrices", "embeddings", "heads", "others", "vectors")


def members(groups: MatrixGroups, name: str) -> list[Weight]:
    found: list[Weight] = getattr(groups, name)
    return found


def names(groups: MatrixGroups, name: str) -> list[str]:
    return [one.name for one in members(groups, name)]


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_trainable_parameter_is_in_one_group(name: str):
    model = outline(name)
    groups = matrix_groups(model)
    found = [one.name for group in GROUPS for one in members(groups, group)]
    assert sorted(found) == sorted(name for name, value in model.named_parameters() if value.requires_grad)
    assert all(one.value.ndim == 2 + one.is_stack for one in groups.matrices)


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
    assert all(any(part in one.name for part in layers) for one in groups.matrices)
    assert not [one.name for one in (*groups.embeddings, *groups.heads) if any(part in one.name for part in layers)]
    assert names(groups, "others") == others


def test_tied_heads_are_embeddings_and_experts_are_stacks():
    assert names(matrix_groups(outline("gpt2")), "heads") == []
    groups = matrix_groups(outline("mixtral"))
    assert names(groups, "heads") == ["lm_head.weight"]
    assert [one.name.rpartition(".")[2] for one in groups.matrices if one.is_stack] == ["gate_up_proj", "down_proj"]
    assert {one.output_axis for one in matrix_groups(outline("gpt2")).matrices} == {1}


def test_torchs_muon_takes_the_matrices_and_adamw_the_rest():
    torch.manual_seed(0)
    model = ARCHITECTURES["deepseek-v3"]()
    groups = matrix_groups(model)
    flat = [one.value for one in groups.matrices if not one.is_stack]
    rest = [one.value for one in groups.weights if not one.is_vector and not any(one.value is each for each in flat)]
    adamw: list[dict[str, Any]] = [
        {"params": rest},
        {"params": [one.value for one in groups.vectors], "weight_decay": 0.0},
    ]
    optimizers = (torch.optim.Muon(flat, lr=0.02), torch.optim.AdamW(adamw, lr=1e-2))
    tokens = torch.arange(48).reshape(3, 16)
    losses = []
    for _ in range(4):
        logits = model(input_ids=tokens).logits[:, :-1]
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        model.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] - 0.5
