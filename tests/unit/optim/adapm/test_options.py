"""Options of another type, or out of their bounds, are refused: what, the value, what it must be."""

import pytest
import torch
from torch import nn

from optim.adapm import AdaPM
from optim.plan.rules import Rule
from worker.checks.tiny_models import tiny_gpt2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"betas": 0.9}, "Invalid betas: 0.9; they must be two numbers"),
        ({"betas": ("0.9", "0.95")}, "Invalid beta parameter at index 0: '0.9'"),
        ({"eps": "1e-8"}, "Invalid epsilon value: '1e-8'; it must be finite, at least 0"),
        ({"weight_decay": None}, "Invalid weight_decay value: None"),
        ({"weight_decay": float("inf")}, "Invalid weight_decay value: inf"),
        ({"lr": None}, "Invalid learning rate: None; it must be a finite number"),
        ({"lr": "1e-3"}, "Invalid learning rate: '1e-3'; it must be a finite number"),
        ({"lr": float("inf")}, "Invalid learning rate: inf"),
        ({"clip": "1"}, "Invalid clip: '1'"),
        ({"solver": ["svd"]}, "Invalid solver: ['svd']; it must be one of subspace"),
        ({"seed": 1.5}, "Invalid seed: 1.5; it must be a whole number"),
        ({"debias_moments": "False"}, "Invalid debias_moments: 'False'; it must be True or False"),
        ({"capturable": 1}, "Invalid capturable: 1; it must be True or False"),
        ({"rank_ratio": "0.05"}, "Invalid rank_ratio: '0.05'"),
        ({"rules": "*.mlp=full"}, "Invalid rules: '*.mlp=full'; they are a list of Rule"),
        ({"rules": ["*.mlp=full"]}, "they are a list of Rule"),
        ({"rules": Rule("*", rank=1)}, "they are a list of Rule"),
        ({"rules": None}, "Invalid rules: None"),
        ({"lr": -0.1}, "Invalid learning rate: -0.1; it must be a finite number, at least 0"),
        ({"lr": float("nan")}, "Invalid learning rate: nan; it must be a finite number, at least 0"),
        ({"betas": (1.0, 0.95)}, "Invalid beta parameter at index 0: 1.0; it must be in [0, 1)"),
        ({"betas": (0.9, -1.0)}, "Invalid beta parameter at index 1: -1.0; it must be in [0, 1)"),
        ({"eps": -1e-8}, "Invalid epsilon value: -1e-08; it must be finite, at least 0"),
        ({"weight_decay": -1.0}, "Invalid weight_decay value: -1.0; it must be finite, at least 0"),
        ({"solver": "magic"}, "Invalid solver: 'magic'; it must be one of subspace, svd"),
        (
            {"inner_iterations": 0},
            "Invalid inner_iterations: 0; it must be a whole number from 1, or None for 1",
        ),
        ({"refresh_interval": -1}, "Invalid refresh_interval: -1; it must be a whole number from 0 (never)"),
        ({"clip": 0.0}, "Invalid clip: 0.0; it must be above 0, or None for no clipping"),
        ({"momentum_free_lr_scale": 0.0}, "Invalid momentum_free_lr_scale: 0.0; it must be finite, above 0"),
        (
            {"matmul_precision": "tf32"},
            "Invalid matmul_precision: 'tf32'; it must be highest, high, medium, or None for torch's",
        ),
        ({"rank_ratio": 0.0}, "Invalid rank_ratio: 0.0; it is a share of min(m, n), in (0, 1]"),
        ({"rank_ratio": 1.5}, "Invalid rank_ratio: 1.5; it is a share of min(m, n), in (0, 1]"),
        ({"unknown": "guess"}, "Invalid unknown: 'guess'; say 'warn', 'full' or 'error'"),
    ],
)
def test_options_of_another_type_or_out_of_their_bounds_are_refused_with_the_way_out(options, said):
    named = [("layers.0.mlp.fc.weight", nn.Parameter(torch.ones(4, 4)))]
    with pytest.raises(ValueError, match="Invalid") as caught:
        AdaPM(named, **{"lr": 1e-3, "unknown": "full"} | options)
    assert said in str(caught.value)


def test_a_group_has_no_plan_of_its_own():
    """But may name the optimizer's, as ZeroRedundancyOptimizer makes all of its groups do."""
    model = tiny_gpt2()
    for rank_ratio, group in ((0.05, 0.5), (0.5, 0.05)):
        groups = [{"params": [*model.named_parameters()], "rank_ratio": group}]
        with pytest.raises(ValueError, match=f"a group of parameters has no rank_ratio of its own: give {group} to"):
            AdaPM.for_model(model, lr=1e-3, params=groups, rank_ratio=rank_ratio)
        with pytest.raises(ValueError, match=f"a group of parameters has no rank_ratio of its own: give {group} to"):
            AdaPM(groups, lr=1e-3, rank_ratio=rank_ratio, heads=2)
        AdaPM.for_model(model, lr=1e-3, params=groups, rank_ratio=group)
