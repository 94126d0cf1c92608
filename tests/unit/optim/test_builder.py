"""The one door: what it builds, and how it refuses."""

import pytest
import torch

from optim.adapm import AdaPM
from optim.builder import build
from optim.errors import OptionError, UnplacedWeightsError
from worker.checks.tiny_models import tiny_gpt2


def test_adamw_is_fused_and_decays_matrices_alone():
    optimizer = build("adamw", tiny_gpt2(), lr=0.01, options={"weight_decay": 0.2})
    matrices, vectors = optimizer.param_groups
    assert {value.ndim for value in matrices["params"]} == {2}
    assert {value.ndim for value in vectors["params"]} == {1}
    assert (matrices["weight_decay"], vectors["weight_decay"]) == (0.2, 0.0)
    for group in (matrices, vectors):
        assert (group["betas"], group["eps"], group["fused"]) == ((0.9, 0.95), 1e-8, True)


def test_options_reach_the_optimizer():
    options = {"beta1": 0.8, "beta2": 0.9, "rank_ratio": 0.5, "state_dtype": "bfloat16", "clip": None, "seed": 3}
    optimizer = build("adapm", tiny_gpt2(), lr=0.01, options=options)
    assert isinstance(optimizer, AdaPM)
    (group,) = optimizer.param_groups
    assert (group["betas"], group["clip"], group["seed"]) == ((0.8, 0.9), None, 3)
    assert {block.rank for block in optimizer.plan} == {0, 16}
    assert {block.state_dtype for block in optimizer.plan} == {torch.bfloat16}


def test_every_fault_is_named_at_once():
    with pytest.raises(OptionError) as caught:
        build("adapm", tiny_gpt2(), lr=-1.0, options={"beta1": 1.0, "solver": "magic", "speed": 11})
    message = str(caught.value)
    for named in ("lr=-1.0", "beta1=1.0", "solver='magic'", "subspace, svd", "speed=11", "seed?"):
        assert named in message


def test_a_model_that_cannot_be_planned_is_kept_in_full_or_refused():
    model = torch.nn.Linear(4, 5)
    with pytest.warns(UserWarning, match=r"weight \(5, 4\)"):
        build("adapm", model, lr=0.01)
    with pytest.raises(UnplacedWeightsError, match=r"weight \(5, 4\)"):
        build("adapm", model, lr=0.01, options={"unknown": "error"})
    assert isinstance(build("adapm", model, lr=0.01, options={"unknown": "full"}), AdaPM)
