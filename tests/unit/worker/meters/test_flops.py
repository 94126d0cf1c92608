"""FLOPs by formula and by count, and the peaks that they are held against."""

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from worker.meters.flops import flops_per_token, peak_flops_per_second
from worker.models import build_model, outline_model


@pytest.mark.parametrize(("name", "router"), [("gpt2-tiny", 0), ("llama-tiny", 0), ("mixtral-tiny", 3 * 4 * 128)])
def test_the_formula_is_what_torch_counts(name: str, router: int) -> None:
    """Forward and backward pass of plain attention, operator by operator; each token goes to two of four experts, and
    routers are left out."""
    model = build_model(name, 0)
    model.set_attn_implementation("eager")
    if router:
        model.set_experts_implementation("eager")
    sequences = torch.randint(0, 256, (3, 64))

    with FlopCounterMode(display=False) as counted:
        model(sequences).logits.sum().backward()

    flops = (flops_per_token(model, 64) or 0.0) + 6 * router
    assert flops == pytest.approx(counted.get_total_flops() / sequences.numel(), rel=1e-4)


def test_frozen_weights_save_their_gradient() -> None:
    """A third of the FLOPs of each frozen map."""
    model = outline_model("gpt2-tiny")
    whole = flops_per_token(model, 8) or 0.0
    frozen = model.get_parameter("transformer.h.0.mlp.c_fc.weight")
    frozen.requires_grad_(False)

    assert whole - (flops_per_token(model, 8) or 0.0) == 2 * frozen.numel()


def test_a_model_of_no_known_kind_has_no_figure() -> None:
    """Nothing is guessed."""
    assert flops_per_token(nn.Linear(3, 4), 8) is None


@pytest.mark.parametrize(
    ("name", "bf16", "fp32"),
    [
        ("NVIDIA H200", 989.5e12, 67e12),
        ("NVIDIA H100 80GB HBM3", 989.5e12, 67e12),
        ("NVIDIA H100 PCIe", 756.5e12, 51e12),
        ("NVIDIA A100-SXM4-80GB", 312e12, 19.5e12),
        ("NVIDIA L40S", 362.05e12, 91.6e12),
        ("NVIDIA L4", 121e12, 30.3e12),
        ("NVIDIA A10G", None, None),
        ("NVIDIA A100-SXM4-40GB MIG 3g.20gb", None, None),
        ("Intel(R) Xeon(R) Processor", None, None),
    ],
)
def test_a_peak_is_known_or_there_is_none(name: str, bf16: float | None, fp32: float | None) -> None:
    """The names that CUDA gives; a part of a GPU is not the whole."""
    assert (peak_flops_per_second(name, "bf16"), peak_flops_per_second(name, "fp32")) == (bf16, fp32)
