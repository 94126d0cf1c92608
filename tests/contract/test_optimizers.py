"""What every optimizer of the catalog promises: torch's own conventions, on a real model."""

import copy
import io

import pytest
import torch
from torch import nn

from optim.build import build
from optim.catalog import entry, names
from optim.entries import Need
from optim.modes import HasModes, result_weights
from optim.state import allocated_state_bytes, state_bytes
from tests.reference.tiny_models import loss_of, tiny_gpt2, tiny_llama, train

pytestmark = pytest.mark.parametrize("name", names())

RATES = {"adafactor": 0.1, "sm3": 0.05, "muon": 0.01, "sgd": 0.3, "nesterov": 0.1, "asgd": 0.1}
"""Rates at which 40 steps teach the tiny models something, where that is not `_rate`'s usual one."""

COASTING = {"adafactor", "asgd", "schedule-free-adamw"}
"""Those that move on at rate 0: Adafactor's momentum is of steps, rates included; the others' averages catch up."""


def _rate(name: str) -> float:
    return RATES.get(name, 3e-3)


def _weights(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in model.named_parameters()}


def _changed(model: nn.Module, before: dict[str, torch.Tensor]) -> set[str]:
    return {name for name, value in model.named_parameters() if not torch.equal(value, before[name])}


def _same(one: nn.Module, other: nn.Module) -> bool:
    return all(torch.equal(a, b) for a, b in zip(_weights(one).values(), _weights(other).values(), strict=True))


def _through_a_file(state: dict[str, object]) -> dict[str, object]:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    loaded: dict[str, object] = torch.load(file, weights_only=True)
    return loaded


def test_it_holds_every_trainable_parameter_once(name):
    model = tiny_gpt2()
    optimizer = build(name, model, lr=_rate(name))
    held = [id(parameter) for group in optimizer.param_groups for parameter in group["params"]]
    assert isinstance(optimizer, torch.optim.Optimizer)
    assert sorted(held) == sorted(id(parameter) for parameter in model.parameters())


def test_the_loss_goes_down(name):
    model = tiny_gpt2()
    losses = train(model, build(name, model, lr=_rate(name)), range(40))
    assert losses[-1] < losses[0] - 1.0


def test_the_loss_of_a_llama_goes_down(name):
    model = tiny_llama()
    losses = train(model, build(name, model, lr=_rate(name)), range(40))
    assert losses[-1] < losses[0] - 1.0


def test_the_same_run_gives_the_same_bits(name):
    one, other = tiny_gpt2(), tiny_gpt2()
    train(one, build(name, one, lr=_rate(name)), range(5))
    train(other, build(name, other, lr=_rate(name)), range(5))
    assert _same(one, other)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_resumed_run_gives_the_bits_of_one_that_never_stopped(name, dtype):
    whole = tiny_gpt2(dtype=dtype)
    train(whole, build(name, whole, lr=_rate(name)), range(8))

    first = tiny_gpt2(dtype=dtype)
    before = build(name, first, lr=_rate(name))
    train(first, before, range(4))
    second = tiny_gpt2(seed=1, dtype=dtype)
    after = build(name, second, lr=_rate(name))
    second.load_state_dict(_through_a_file(first.state_dict()))
    after.load_state_dict(_through_a_file(before.state_dict()))
    assert state_bytes(after) == state_bytes(before)
    train(second, after, range(4, 8))
    assert _same(whole, second)


def test_a_state_may_be_loaded_into_an_optimizer_that_has_loaded_one(name):
    """As Accelerate does, which loads when it prepares an optimizer."""
    model = tiny_gpt2()
    optimizer = build(name, model, lr=_rate(name))
    optimizer.load_state_dict(optimizer.state_dict())
    train(model, optimizer, range(2))
    saved = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
    train(model, optimizer, range(2, 4))
    expected = _weights(model)
    model.load_state_dict(saved[0])
    optimizer.load_state_dict(saved[1])
    train(model, optimizer, range(2, 4))
    assert _changed(model, expected) == set()


def test_a_deep_copy_goes_on_alike_and_apart(name):
    model = tiny_gpt2()
    optimizer = build(name, model, lr=_rate(name))
    train(model, optimizer, range(3))
    twin_model, twin = copy.deepcopy((model, optimizer))
    at_copy = _weights(twin_model)
    train(model, optimizer, range(3, 6))
    assert _changed(twin_model, at_copy) == set()
    train(twin_model, twin, range(3, 6))
    assert _same(model, twin_model)


def test_a_schedulers_rate_is_the_rate(name):
    model = tiny_gpt2()
    optimizer = build(name, model, lr=_rate(name))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: float(step < 2))
    before = _weights(model)
    for step in range(2):  # SOAP only looks at its first gradient
        train(model, optimizer, range(step, step + 1))
        schedule.step()
    assert _changed(model, before) == set(before)
    before = _weights(model)
    train(model, optimizer, range(2, 3))
    assert _changed(model, before) == (set(before) if name in COASTING else set())


def test_each_group_has_its_own_rate(name):
    model = tiny_gpt2()
    optimizer = build(name, model, lr=_rate(name))
    names_of = {id(value): key for key, value in model.named_parameters()}
    for still in optimizer.param_groups:
        for group in optimizer.param_groups:
            group["lr"] = 0.0 if group is still else _rate(name)
        before = _weights(model)
        train(model, optimizer, range(2))
        frozen = {names_of[id(value)] for value in still["params"]}
        assert _changed(model, before).isdisjoint(frozen) or name in COASTING


def test_a_closure_is_evaluated_with_gradients_and_its_loss_returned(name):
    model = tiny_gpt2()
    optimizer = build(name, model, lr=_rate(name))
    train(model, optimizer, range(1))
    before = _weights(model)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = loss_of(model, 0)
        loss.backward()
        return loss

    expected = loss_of(model, 0).item()
    returned = optimizer.step(closure)  # type: ignore[arg-type]  # torch types the loss float; its practice is a tensor
    assert returned == expected
    assert _changed(model, before) == set(before)


def test_a_parameter_without_gradient_stays_and_costs_nothing(name):
    model = tiny_gpt2()
    optimizer = build(name, model, lr=_rate(name))
    before = _weights(model)
    optimizer.step()
    assert _changed(model, before) == set()
    assert state_bytes(optimizer).total_bytes == 0


def test_frozen_parameters_are_left_out(name):
    model = tiny_gpt2()
    model.get_parameter("transformer.wte.weight").requires_grad_(False)
    optimizer = build(name, model, lr=_rate(name))
    before = _weights(model)
    train(model, optimizer, range(2))
    assert _changed(model, before) == set(before) - {"transformer.wte.weight"}


def test_a_model_without_trainable_parameters_is_refused_as_in_torch(name):
    model = tiny_gpt2()
    with pytest.raises(ValueError, match="empty parameter list"):
        build(name, model.requires_grad_(False), lr=_rate(name))


def test_bfloat16_weights_train_and_stay_bfloat16(name):
    model = tiny_gpt2(dtype=torch.bfloat16)
    losses = train(model, build(name, model, lr=_rate(name)), range(40))
    assert losses[-1] < losses[0] - 1.0
    assert {value.dtype for value in model.parameters()} == {torch.bfloat16}


def test_a_gradient_that_is_not_finite_spoils_its_weight_visibly_and_no_other(name):
    model = tiny_gpt2()
    optimizer = build(name, model, lr=_rate(name))
    train(model, optimizer, range(1))
    loss_of(model, 1).backward()
    weight = model.get_parameter("transformer.h.0.mlp.c_fc.weight")
    weight.grad = torch.full_like(weight, torch.nan)
    before = _weights(model)
    optimizer.step()
    held = [weight, *(value for value in optimizer.state[weight].values() if isinstance(value, torch.Tensor))]
    assert any(value.isnan().all() for value in held)  # Lion's sign of NaN is 0: it spoils its momentum alone
    others = {key: value for key, value in model.named_parameters() if value is not weight}
    assert all(value.isfinite().all() for value in others.values())
    assert _changed(model, before) >= set(others)


def test_matrices_decay_and_vectors_do_not(name):
    model = tiny_gpt2()
    optimizer = build(name, model, lr=_rate(name), options={"weight_decay": 1.0})
    before = _weights(model)
    for _ in range(2):  # SOAP only looks at its first gradient
        for value in model.parameters():
            value.grad = torch.zeros_like(value)
        optimizer.step()
    for key, value in model.named_parameters():
        kept = 1.0 if value.ndim < 2 else (value.norm() / before[key].norm()).item()
        assert value.ndim < 2 or 0.0 < kept < 1.0
        torch.testing.assert_close(value.detach(), before[key] * kept)


def test_it_has_a_mode_for_training_and_one_for_results_where_the_catalog_says_so(name):
    model = tiny_gpt2()
    optimizer = build(name, model, lr=_rate(name))
    assert isinstance(optimizer, HasModes) is (Need.MODES in entry(name).needs)
    with result_weights(optimizer):  # before the first step there is one set of weights
        start = _weights(model)
    assert _changed(model, start) == set()
    train(model, optimizer, range(20))
    trained = _weights(model)
    with result_weights(optimizer):
        assert _changed(model, trained) == (set(trained) if Need.MODES in entry(name).needs else set())
        assert loss_of(model, 30).item() < 4.0
    for key, value in model.named_parameters():
        torch.testing.assert_close(value.detach(), trained[key])


def test_zero_gradients_are_harmless_and_do_not_stall_it(name):
    model = tiny_gpt2()
    optimizer = build(name, model, lr=_rate(name), options={"weight_decay": 0.0})
    for value in model.parameters():
        value.grad = torch.zeros_like(value)
    before = _weights(model)
    optimizer.step()
    assert _changed(model, before) == set()
    losses = train(model, optimizer, range(40))
    assert losses[-1] < losses[0] - 1.0


def test_its_state_has_the_size_that_meta_tensors_foretold(name):
    with torch.device("meta"):
        foretold = allocated_state_bytes(build(name, tiny_gpt2(), lr=_rate(name)))
    model = tiny_gpt2()
    optimizer = build(name, model, lr=_rate(name))
    train(model, optimizer, range(1))
    after_one = state_bytes(optimizer)
    train(model, optimizer, range(1, 4))
    assert after_one == foretold
    assert state_bytes(optimizer) == foretold


def test_its_defaults_are_the_catalogs(name):
    explicit, implicit = tiny_gpt2(), tiny_gpt2()
    train(explicit, build(name, explicit, lr=_rate(name), options=entry(name).defaults()), range(2))
    train(implicit, build(name, implicit, lr=_rate(name)), range(2))
    assert _same(explicit, implicit)
