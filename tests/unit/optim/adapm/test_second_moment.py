"""The second moment: Adam's and Adam-mini's, by hand on small matrices."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from optim.adapm import AdaPM, AdaPMMini
from optim.adapm.groups import Group, ParamSlice
from optim.adapm.options import StepSettings
from optim.adapm.step import element_divisor, shared_divisor, sums_of_groups
from optim.plan.blocks import Block, BlockKind, BlockPlan, FirstMoment, SecondMoment

G = torch.tensor([[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]])


def block(second_moment: SecondMoment, dtype: torch.dtype = torch.float32, **fields: Any) -> Block:
    return Block(
        parameter="w",
        kind=BlockKind.MLP,
        shape=(2, 4),
        first_moment=FirstMoment.NONE,
        second_moment=second_moment,
        state_dtype=dtype,
        **fields,
    )


def after_one_step(block: Block, **options: Any) -> tuple[Tensor, Tensor]:
    """(what is stored, the divisor over the whole block) with b2 = 0.5 and v = 0 before."""
    stored = torch.zeros(block.state_shapes["exp_avg_sq"], dtype=block.state_dtype)
    optimizer = AdaPM([("w", nn.Parameter(G))], 1e-3, plan=BlockPlan((block,)), betas=(0.9, 0.5), eps=0.25, **options)
    settings = StepSettings(optimizer.param_groups[0], 1)
    if block.second_moment is SecondMoment.ELEMENT:
        return stored, element_divisor(stored, G, settings)
    group = Group([ParamSlice(block, 0, torch.zeros(2, 4), {"exp_avg_sq": stored})], {"exp_avg_sq": stored})
    squares = sums_of_groups(group, G.square().sum(dim=1 - block.output_axis))
    return stored, shared_divisor(group, squares, settings).expand(2, 4)


@pytest.mark.parametrize(
    ("of", "means"),
    [
        (block(SecondMoment.ELEMENT), G * G),
        (block(SecondMoment.ROW), torch.tensor([7.5, 43.5])),
        (block(SecondMoment.NEURON, output_axis=1), torch.tensor([13.0, 20.0, 29.0, 40.0])),
        (block(SecondMoment.HEAD, output_axis=1, head_size=2), torch.tensor([16.5, 34.5])),
        (block(SecondMoment.HEAD, head_size=2), torch.tensor([25.5])),
    ],
)
def test_it_averages_the_squared_gradient_over_all_that_share_a_value(of, means):
    stored, _ = after_one_step(of)
    torch.testing.assert_close(stored, 0.5 * means)


def test_the_divisor_is_the_root_plus_epsilon_for_each_element():
    _, element = after_one_step(block(SecondMoment.ELEMENT))
    torch.testing.assert_close(element, (0.5 * G * G).sqrt() + 0.25)
    _, row = after_one_step(block(SecondMoment.ROW))
    torch.testing.assert_close(row, (0.5 * torch.tensor([[7.5], [43.5]])).sqrt().expand(2, 4) + 0.25)
    _, head = after_one_step(block(SecondMoment.HEAD, output_axis=1, head_size=2))
    torch.testing.assert_close(head, (0.5 * torch.tensor([16.5, 16.5, 34.5, 34.5])).sqrt().expand(2, 4) + 0.25)


def test_debiasing_divides_v_before_the_root():
    _, debiased = after_one_step(block(SecondMoment.ELEMENT), debias_moments=True)
    torch.testing.assert_close(debiased, G + 0.25)


def test_bfloat16_state_is_averaged_in_float32_and_rounded_once():
    stored, divisor = after_one_step(block(SecondMoment.ELEMENT, torch.bfloat16))
    assert torch.equal(stored, (0.5 * G * G).to(torch.bfloat16))
    assert divisor.dtype is torch.float32


@pytest.mark.parametrize("cls", [AdaPM, AdaPMMini])
def test_a_second_moment_that_overflows_leaves_its_weights_where_they_are(cls):
    """As AdamW does: v is infinite from then on, and no gradient makes NaN of it."""
    named = [(f"layers.0.self_attn.{kind}_proj.weight", nn.Parameter(torch.randn(8, 8))) for kind in "qkvo"]
    optimizer = cls(named, lr=1e-3, heads=2, weight_decay=0.0)
    for size in (0.01, 1e20, 0.01, 0.01):
        originals = [value.detach().clone() for _, value in named]
        for _, value in named:
            value.grad = torch.full_like(value, size)
        optimizer.step()
    assert all(value.isfinite().all() for _, value in named)
    assert all(torch.equal(value, old) for (_, value), old in zip(named, originals, strict=True))
