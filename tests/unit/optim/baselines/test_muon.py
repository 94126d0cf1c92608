"""Muon against its twin, on maps stored either way and on experts, with AdamW for the rest."""

from collections import Counter

import pytest
import torch
from torch import Tensor, nn

from optim.baselines import muon as muon_module
from optim.baselines import per_parameter
from optim.baselines.muon import Muon
from optim.builder import build
from tests.twins.baselines import adamw, muon, normuon
from worker.checks.tiny_models import tiny_gpt2, tiny_llama


def names_of(optimizer: torch.optim.Optimizer) -> list[set[str]]:
    return [{name.removeprefix("model.layers.0.") for name in group["param_names"]} for group in optimizer.param_groups]


def test_attention_and_mlp_matrices_are_muons_and_all_others_adamws():
    optimizer = build("muon", tiny_llama(), lr=0.01, options={"weight_decay": 0.2})
    attention = {f"self_attn.{part}_proj.weight" for part in "qkvo"}
    assert names_of(optimizer) == [
        attention | {"mlp.gate_proj.weight", "mlp.up_proj.weight", "mlp.down_proj.weight"},
        {"model.embed_tokens.weight", "lm_head.weight"},
        {"input_layernorm.weight", "post_attention_layernorm.weight", "model.norm.weight"},
    ]
    assert [group["orthogonal"] for group in optimizer.param_groups] == [True, False, False]
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.2, 0.2, 0.0]


def moved(
    model: nn.Module, optimizer_name: str = "muon", **options: object
) -> dict[str, tuple[Tensor, Tensor, list[Tensor]]]:
    """Name → (where Muon's parameters came from, where they went in three steps, their gradients)."""
    optimizer = build(optimizer_name, model, lr=0.01, options=options)
    generator = torch.Generator().manual_seed(0)
    start = {name: value.detach().clone() for name, value in model.named_parameters()}
    streams = {name: [torch.randn(value.shape, generator=generator) for _ in range(3)] for name, value in start.items()}
    for step in range(3):
        for name, value in model.named_parameters():
            value.grad = streams[name][step]
        optimizer.step()
    return {name: (start[name], value.detach(), streams[name]) for name, value in model.named_parameters()}


def agree(step: Tensor, expected: Tensor) -> None:
    """Five iterations find singular values between 0.7 and 1.2 instead of 1, so steps agree in direction and size."""
    assert torch.cosine_similarity(step.flatten(), expected.flatten(), dim=0) > 0.95
    assert 0.8 < float(step.norm() / expected.norm()) < 1.2


def test_its_two_parts_are_their_twins():
    moves = moved(tiny_llama())
    for name, (start, end, gradients) in moves.items():
        if "_proj" in name:
            agree(end - start, muon(start, gradients, 0.01, 0.95, 0.1) - start)
    start, end, gradients = moves["lm_head.weight"]
    torch.testing.assert_close(end, adamw(start, gradients, 0.01, 0.9, 0.95, 1e-8, 0.1), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("adjust_lr", ["match_rms_adamw", "original"])
def test_matrices_of_linear_maps_move_as_torchs_own_muon_moves_them(adjust_lr):
    """Which rounds in the same places, and takes one matrix after the other."""
    shapes = [(16, 16), (16, 40), (40, 16), (16, 16), (24, 16)]
    weights = [nn.Parameter(torch.randn(shape, generator=torch.Generator().manual_seed(0))) for shape in shapes]
    twins = [nn.Parameter(value.detach().clone()) for value in weights]
    named = [(str(index), value) for index, value in enumerate(weights)]
    optimizer = Muon([{"params": named, "orthogonal": True}], 0.01, adjust_lr=adjust_lr)
    peer = torch.optim.Muon(twins, lr=0.01, adjust_lr_fn=adjust_lr)
    generator = torch.Generator().manual_seed(1)
    for _ in range(3):
        for weight, twin in zip(weights, twins, strict=True):
            weight.grad = torch.randn(weight.shape, generator=generator)
            twin.grad = weight.grad.clone()
        optimizer.step()
        peer.step()
    torch.testing.assert_close(weights, twins, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("most", [1, 2**18])
def test_like_matrices_share_a_product_up_to_the_bound(most, monkeypatch):
    monkeypatch.setattr(per_parameter, "_CPU_BATCH", most)
    products: list[int] = []

    def keep(stack: Tensor, iterations: int) -> Tensor:
        products.append(len(stack))
        return stack

    monkeypatch.setattr(muon_module, "polar_factors", keep)
    optimizer = build("muon", tiny_llama(), lr=0.01)
    for group in optimizer.param_groups:
        for value in group["params"]:
            value.grad = torch.ones_like(value)
    optimizer.step()
    shapes = [value.shape for value in optimizer.param_groups[0]["params"]]
    assert products == ([1] * len(shapes) if most == 1 else list(Counter(shapes).values()))


@pytest.mark.parametrize("adjust_lr", ["match_rms_adamw", "original"])
def test_sizes_are_the_maps_own_however_they_are_stored(adjust_lr):
    """GPT-2 stores in × out: by the stored shape, Jordan's step of `c_fc` would be half as long, of `c_proj` twice."""
    moves = moved(tiny_gpt2(), adjust_lr=adjust_lr, weight_decay=0.0)
    for name in ("mlp.c_fc", "mlp.c_proj", "attn.c_attn", "attn.c_proj"):
        start, end, gradients = moves[f"transformer.h.0.{name}.weight"]
        expected = muon(start.T, [gradient.T for gradient in gradients], 0.01, 0.95, 0.0, adjust_lr) - start.T
        agree((end - start).T, expected)


def test_normuon_makes_the_neurons_of_maps_alike_however_they_are_stored():
    for model, turned in ((tiny_llama(), False), (tiny_gpt2(), True)):
        for name, (start, end, gradients) in moved(model, "normuon").items():
            if name.endswith(("q_proj.weight", "mlp.c_fc.weight")):
                start, end, *gradients = (matrix.T if turned else matrix for matrix in (start, end, *gradients))
                agree(end - start, normuon(start, gradients, 0.01, 0.95, 0.95, 0.1) - start)


@pytest.mark.parametrize(("model", "orthogonal"), [(nn.Linear(4, 3), [False, False]), (tiny_gpt2(), [True])])
def test_a_part_without_parameters_is_left_out(model, orthogonal):
    for name, value in model.named_parameters():
        value.requires_grad_(isinstance(model, nn.Linear) or "mlp.c_fc.weight" in name)
    optimizer = build("muon", model, lr=0.01)
    assert [group["orthogonal"] for group in optimizer.param_groups] == orthogonal
