"""The optimizer around our own rules: names, sparse gradients, and states that do not fit."""

import pytest
import torch
from torch import nn

from optim.baselines.asgd import AcceleratedSGD
from optim.baselines.galore import GaLore, allowed_growth
from optim.baselines.muon import Muon


def test_parameters_without_names_are_refused_and_left_out():
    with pytest.raises(ValueError, match=r"AcceleratedSGD needs names: give it model\.named_parameters\(\)"):
        AcceleratedSGD(nn.Linear(2, 3).parameters(), 0.1)


def test_a_state_of_another_rank_is_refused_before_anything_changes():
    saved = {}
    for ratio in (0.25, 0.5):
        model = nn.Linear(8, 8, bias=False)
        optimizer = GaLore([{"params": [("weight", model.weight)], "projected": True}], 0.1, rank_ratio=ratio)
        model.weight.grad = torch.ones(8, 8)
        optimizer.step()
        saved[ratio] = optimizer.state_dict()
    with pytest.raises(ValueError, match=r"the state to load for weight is \{'projection': \(8, 2\), .*GaLore keeps"):
        optimizer.load_state_dict(saved[0.25])
    assert optimizer.state[model.weight]["projection"].shape == (8, 4)


def test_an_option_that_a_saved_state_does_not_know_stays_as_it_was_given():
    model = nn.Linear(8, 6, bias=False)
    optimizer = GaLore([{"params": [("weight", model.weight)], "projected": True, "output_axis": 1}], 0.1)
    model.weight.grad = torch.ones(6, 8)
    optimizer.step()
    saved = optimizer.state_dict()
    del saved["param_groups"][0]["output_axis"]
    optimizer.load_state_dict(saved)
    assert optimizer.param_groups[0]["output_axis"] == 1


def test_a_state_that_projects_square_matrices_on_their_other_side_is_refused():
    """Its shapes are the same: nothing else would tell."""
    model = nn.Linear(8, 8, bias=False)
    optimizer = GaLore([{"params": [("weight", model.weight)], "projected": True, "output_axis": 0}], 0.1)
    model.weight.grad = torch.ones(8, 8)
    optimizer.step()
    saved = optimizer.state_dict()
    optimizer.load_state_dict(saved)
    del saved["param_groups"][0]["output_axis"]
    with pytest.raises(ValueError, match="state of weight projects its square matrix on the other side; begin anew"):
        optimizer.load_state_dict(saved)


def test_state_of_bfloat16_weights_is_float32_and_stays_so_through_loading():
    model = nn.Linear(4, 4, bias=False, dtype=torch.bfloat16)
    optimizer = AcceleratedSGD(model.named_parameters(), 0.1)
    model.weight.grad = torch.full_like(model.weight, 1e-4)
    optimizer.step()
    original = optimizer.state[model.weight]["long_step"].clone()
    optimizer.load_state_dict(optimizer.state_dict())
    assert optimizer.state[model.weight]["long_step"].dtype is torch.float32
    assert torch.equal(optimizer.state[model.weight]["long_step"], original)


def test_norms_rise_slowly_and_fall_freely():
    last = torch.zeros(())
    lengths = []
    for length in (1.0, 5.0, 5.0, 0.5, 0.4):
        norm = torch.tensor([[length]])
        lengths.append((norm * allowed_growth(norm, last, 1.01, debias=1.0)).item())
    assert lengths == pytest.approx([1.0, 1.01, 1.0201, 0.5, 0.4])


@pytest.mark.parametrize(("option", "value"), [("beta", 0.0), ("beta", 1.5), ("spectral_decay", 1.0)])
def test_accelerated_sgd_refuses_what_has_no_meaning(option, value):
    with pytest.raises(ValueError, match=f"Invalid {option}: {value}"):
        AcceleratedSGD(nn.Linear(2, 3).named_parameters(), 0.1, **{option: value})


def test_a_backward_through_weights_that_the_fused_kernel_moved_is_refused():
    model = nn.Linear(2, 2)
    optimizer = Muon(model.named_parameters(), 0.1)
    loss = model(torch.ones(1, 2, requires_grad=True)).sum()
    loss.backward(retain_graph=True)
    optimizer.step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
