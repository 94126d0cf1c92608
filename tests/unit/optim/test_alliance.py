"""The alliance, and Muon with its auxiliary AdamW, which is one."""

import pytest
import torch
from torch import nn

from optim.alliance import Alliance
from optim.build import build
from tests.reference.baselines import adamw, muon
from worker.tiny_models import tiny_gpt2, tiny_llama, train


def names_of(optimizer: torch.optim.Optimizer) -> list[set[str]]:
    return [{name.removeprefix("model.layers.0.") for name in group["param_names"]} for group in optimizer.param_groups]


def test_attention_and_mlp_matrices_are_muons_and_all_others_adamws():
    optimizer = build("muon", tiny_llama(), lr=0.01, options={"weight_decay": 0.2})
    assert isinstance(optimizer, Alliance)
    assert [type(member) for member in optimizer.members] == [torch.optim.Muon, torch.optim.AdamW]
    attention = {f"self_attn.{part}_proj.weight" for part in "qkvo"}
    assert names_of(optimizer) == [
        attention | {"mlp.gate_proj.weight", "mlp.up_proj.weight", "mlp.down_proj.weight"},
        {"model.embed_tokens.weight", "lm_head.weight"},
        {"input_layernorm.weight", "post_attention_layernorm.weight", "model.norm.weight"},
    ]
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.2, 0.2, 0.0]


def test_its_two_parts_are_their_twins():
    """Muon's five iterations find singular values between 0.7 and 1.2 instead of 1, so its steps agree in direction."""
    model = tiny_llama()
    optimizer = build("muon", model, lr=0.01)
    generator = torch.Generator().manual_seed(0)
    start = {name: value.detach().clone() for name, value in model.named_parameters()}
    streams = {name: [torch.randn(value.shape, generator=generator) for _ in range(3)] for name, value in start.items()}
    for step in range(3):
        for name, value in model.named_parameters():
            value.grad = streams[name][step]
        optimizer.step()
    for name in optimizer.param_groups[0]["param_names"]:
        found = model.get_parameter(name).detach() - start[name]
        expected = muon(start[name], streams[name], 0.01, 0.95, 0.1) - start[name]
        assert torch.cosine_similarity(found.flatten(), expected.flatten(), dim=0) > 0.95
        assert 0.8 < float(found.norm() / expected.norm()) < 1.2
    twin = adamw(start["lm_head.weight"], streams["lm_head.weight"], 0.01, 0.9, 0.95, 1e-8, 0.1)
    torch.testing.assert_close(model.get_parameter("lm_head.weight").detach(), twin, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("model", "kind"), [(nn.Linear(4, 3), torch.optim.AdamW), (tiny_gpt2(), torch.optim.Muon)])
def test_a_part_without_parameters_is_left_out(model, kind):
    for name, value in model.named_parameters():
        value.requires_grad_(isinstance(model, nn.Linear) or "mlp.c_fc.weight" in name)
    optimizer = build("muon", model, lr=0.01)
    assert isinstance(optimizer, Alliance)
    assert [type(member) for member in optimizer.members] == [kind]


def test_members_work_on_the_alliances_groups_and_state_after_loading_too():
    model = tiny_gpt2()
    optimizer = build("muon", model, lr=0.01)
    assert isinstance(optimizer, Alliance)
    train(model, optimizer, range(2))
    optimizer.load_state_dict(optimizer.state_dict())
    groups = [group for member in optimizer.members for group in member.param_groups]
    assert all(own is shared for own, shared in zip(optimizer.param_groups, groups, strict=True))
    assert all(member.state is optimizer.state for member in optimizer.members)
    assert len(optimizer.state) == len(list(model.parameters()))
