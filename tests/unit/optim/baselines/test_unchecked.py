"""Classes of `pytorch_optimizer` by name: what is passed on, and what is refused in words."""

from typing import Any

import pytest
import torch

from optim import build, entry
from optim.catalog import knows, names
from optim.errors import OptionError, UnknownOptimizerError
from worker.checks.tiny_models import tiny_gpt2, train


def test_a_class_is_built_by_its_name_and_no_list_has_it():
    losses = train(model := tiny_gpt2(), build("pytorch_optimizer.Prodigy", model, lr=1.0), range(40))
    assert losses[-1] < losses[0] - 1.0
    assert entry("pytorch_optimizer.Prodigy").title == "Prodigy (unchecked)"
    assert knows("pytorch_optimizer.Prodigy")
    assert not any("." in name for name in names())


def test_options_reach_the_class_and_betas_one_by_one():
    options = {"beta2": 0.5, "eps": 1e-3, "weight_decay": 0.3}
    optimizer = build("pytorch_optimizer.AdaBelief", tiny_gpt2(), lr=0.1, options=options)
    assert optimizer.defaults["betas"] == (0.9, 0.5)
    assert optimizer.defaults["eps"] == 1e-3
    assert optimizer.defaults["weight_decouple"] is True
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.3, 0.0]


def test_matrices_decay_where_the_class_knows_no_decay():
    model = tiny_gpt2()
    optimizer = build("pytorch_optimizer.SM3", model, lr=0.1, options={"weight_decay": 0.5})
    originals = {name: value.detach().clone() for name, value in model.named_parameters()}
    for value in model.parameters():
        value.grad = torch.zeros_like(value)
    optimizer.step()
    for name, value in model.named_parameters():
        torch.testing.assert_close(value.detach(), originals[name] * (0.95 if value.ndim > 1 else 1.0))


@pytest.mark.parametrize(
    ("name", "options", "error", "words"),
    [
        ("Prodigi", {}, UnknownOptimizerError, "did you mean Prodigy"),
        ("load_optimizer", {}, UnknownOptimizerError, "unknown optimizer of pytorch_optimizer"),
        ("Prodigy", {"d_coeff": 1.0}, OptionError, "Prodigy has no option d_coeff; it has: params, lr, betas"),
        ("Prodigy", {"weight_decay": -1.0}, OptionError, "weight_decay=-1.0 must be a number in"),
        ("SophiaH", {}, OptionError, "needs second derivatives"),
        ("Muon", {}, ValueError, "`use_muon` must be set"),
        ("SAM", {}, OptionError, "cannot be built from a model, a learning rate and options alone"),
    ],
)
def test_what_cannot_be_built_is_said(name: str, options: dict[str, Any], error: type[Exception], words: str):
    with pytest.raises(error, match=words):
        build(f"pytorch_optimizer.{name}", tiny_gpt2(), lr=0.1, options=options)


@pytest.mark.parametrize("name", ["pytorch_optimizer.", "pytorch_optimizer.os.system", "torch.Adam", "Prodigy"])
def test_other_names_are_unknown(name: str):
    with pytest.raises(UnknownOptimizerError, match=f"unknown optimizer '{name}'"):
        entry(name)
