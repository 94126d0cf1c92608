"""Requirements of training loops, `torch.amp`, schedulers and checkpoints on any `torch.optim.Optimizer`, met by the
catalog.

`worker/checks/optimizer_contract.py` has what every optimizer promises, plug-ins included; here is what else torch's
tests of optimizers look at. What one of them does not do, it says.
"""

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import nn

from optim.adapm import AdaPM, AdaPMMini
from optim.baselines.adam_mini import AdamMini
from optim.builder import build
from optim.catalog import names
from worker.checks.tiny_models import loss_of, tiny_gpt2, train

NAMES = pytest.mark.parametrize("name", names())
RATE = 3e-3
BY_LIBRARIES = {
    "adafactor",
    "came",
    "sm3",
    "soap",
    "lion",
    "signsgd",
    "schedule-free-adamw",
    "adamw-8bit",
    "adamw-4bit",
}
"""Their classes are made when they are built: they are saved by their state dicts alone."""
OURS = sorted(set(names()) - BY_LIBRARIES - {"adamw", "sgd", "nesterov"})
"""Of classes in `optim/`; the three are torch's."""
TAKING_SPARSE = {"sm3", "sgd", "nesterov"}


def same_bits(model: nn.Module, other: nn.Module) -> bool:
    return all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))


def backward(model: nn.Module, seed: int = 0) -> None:
    loss_of(model, seed).backward()


@NAMES
def test_hooks_are_called_around_a_step_and_a_state(name: str):
    torch.optim.SGD([torch.zeros(1, requires_grad=True)])  # torch wraps the step of each class with an instance
    model = tiny_gpt2()
    optimizer = build(name, model, lr=RATE)
    called: list[str] = []
    optimizer.register_step_pre_hook(lambda *_: called.append("before"))
    optimizer.register_step_post_hook(lambda *_: called.append("after"))
    optimizer.register_state_dict_post_hook(lambda *_: called.append("saved"))
    optimizer.register_load_state_dict_pre_hook(lambda *_: called.append("loading"))
    train(model, optimizer, range(1))
    optimizer.load_state_dict(optimizer.state_dict())
    assert called == ["before", "after", "saved", "loading"]


@pytest.mark.parametrize("name", sorted(set(names()) - BY_LIBRARIES))
def test_a_pickled_copy_goes_on_alike(name: str):
    model = tiny_gpt2()
    optimizer = build(name, model, lr=RATE)
    train(model, optimizer, range(2))
    other, twin = pickle.loads(pickle.dumps((model, optimizer)))
    train(model, optimizer, range(2, 4))
    train(other, twin, range(2, 4))
    assert same_bits(model, other)


def test_a_copy_of_a_scheduled_optimizer_steps_its_own_weights():
    """Schedulers wrap `step` on the instance; the copy must not inherit the original's."""
    model = nn.Linear(3, 2)
    optimizer = build("lion", model, lr=0.1)
    torch.optim.lr_scheduler.ConstantLR(optimizer)
    twin_model, twin = copy.deepcopy((model, optimizer))
    original = model.weight.detach().clone()
    for value in twin_model.parameters():
        value.grad = torch.ones_like(value)
    twin.step()
    assert torch.equal(model.weight, original)
    assert not torch.equal(twin_model.weight, original)


@NAMES
@pytest.mark.parametrize("flat", [False, True])
def test_a_distributed_state_dict_of_it_goes_on_alike(name: str, flat: bool):
    model, other = tiny_gpt2(), tiny_gpt2(seed=1)
    optimizer, twin = build(name, model, lr=RATE), build(name, other, lr=2 * RATE)
    train(model, optimizer, range(2))
    from torch.distributed.checkpoint.state_dict import (  # a second, of this test alone
        StateDictOptions,
        get_optimizer_state_dict,
        set_optimizer_state_dict,
    )

    options = StateDictOptions(flatten_optimizer_state_dict=flat)
    if flat and name == "soap":
        with pytest.raises(NotImplementedError, match="only supports tensor, int, float, dict"):  # it keeps lists
            get_optimizer_state_dict(model, optimizer, options=options)
        return
    saved = copy.deepcopy(get_optimizer_state_dict(model, optimizer, options=options))
    other.load_state_dict(model.state_dict())
    set_optimizer_state_dict(other, twin, saved, options=options)
    train(model, optimizer, range(2, 4))
    train(other, twin, range(2, 4))
    assert same_bits(model, other)


@NAMES
def test_a_gradient_scaler_scales_without_a_trace_and_skips_what_overflows(name: str):
    model, other = tiny_gpt2(), tiny_gpt2()
    optimizer, twin = build(name, model, lr=RATE), build(name, other, lr=RATE)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=10**6)
    for seed in range(2):
        optimizer.zero_grad()
        scaler.scale(loss_of(model, seed)).backward()
        scaler.step(optimizer)
        scaler.update()
    train(other, twin, range(2))
    assert same_bits(model, other)
    scaler.scale(loss_of(model, 2)).backward()
    spoilt = next(model.parameters()).grad
    assert spoilt is not None
    spoilt.fill_(torch.inf)
    scaler.step(optimizer)
    scaler.update()
    assert same_bits(model, other)
    assert scaler.get_scale() == 2.0**9


@pytest.mark.parametrize("name", OURS)
def test_a_rate_that_is_a_tensor_is_the_rate(name: str):
    model, other = tiny_gpt2(), tiny_gpt2()
    optimizer, twin = build(name, model, lr=RATE), build(name, other, lr=RATE)
    for group in optimizer.param_groups:
        group["lr"] = torch.tensor(group["lr"], dtype=torch.float64)
    train(model, optimizer, range(2))
    train(other, twin, range(2))
    for weight, expected in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(weight, expected, rtol=1e-6, atol=1e-7)


@NAMES
def test_schedules_of_rate_and_momentum_are_followed(name: str):
    model = tiny_gpt2()
    optimizer = build(name, model, lr=RATE)
    cycles = "betas" in optimizer.defaults or "momentum" in optimizer.defaults
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=RATE, total_steps=4, cycle_momentum=cycles)
    for step in range(3):
        train(model, optimizer, range(step, step + 1))
        schedule.step()
    assert all(value.isfinite().all() for value in model.parameters())
    resumed = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=RATE, total_steps=4, cycle_momentum=cycles)
    resumed.load_state_dict(schedule.state_dict())
    assert resumed.get_last_lr() == schedule.get_last_lr()


@NAMES
def test_a_state_is_loaded_for_weights_of_another_type(name: str):
    model, other = tiny_gpt2(), tiny_gpt2(dtype=torch.bfloat16)
    optimizer, twin = build(name, model, lr=RATE), build(name, other, lr=RATE)
    train(model, optimizer, range(2))
    twin.load_state_dict(optimizer.state_dict())
    train(other, twin, range(2, 4))
    assert all(value.isfinite().all() and value.dtype is torch.bfloat16 for value in other.parameters())


@NAMES
def test_a_sparse_gradient_is_followed_or_refused(name: str):
    model = tiny_gpt2()
    optimizer = build(name, model, lr=RATE)
    backward(model)
    table = model.get_parameter("transformer.wte.weight")
    table.grad = torch.eye(*table.shape).to_sparse()
    original = table.detach().clone()
    if name in TAKING_SPARSE:
        optimizer.step()
        assert table.isfinite().all() and not torch.equal(table, original)
    else:
        with pytest.raises(Exception, match=r"(?i)sparse"):
            optimizer.step()


@NAMES
def test_a_group_may_come_later(name: str):
    model = tiny_gpt2()
    late = ("transformer.h.1.mlp.c_fc.weight", model.get_parameter("transformer.h.1.mlp.c_fc.weight"))
    late[1].requires_grad_(False)
    optimizer = build(name, model, lr=RATE)
    train(model, optimizer, range(2))
    original = late[1].detach().clone()
    late[1].requires_grad_(True)
    options = {key: value for key, value in optimizer.param_groups[0].items() if key not in ("params", "param_names")}
    optimizer.add_param_group({**options, "params": [late], "lr": RATE / 2})
    train(model, optimizer, range(2, 5))
    assert not torch.equal(late[1], original) and late[1].isfinite().all()


@pytest.mark.parametrize("name", OURS)
def test_a_flag_of_torch_s_that_ours_cannot_follow_is_refused_with_the_reason(name: str):
    """`test_capturable.py` has what AdaPM follows."""
    model = tiny_gpt2()
    optimizer = build(name, model, lr=RATE)
    cls: Any = type(optimizer)
    for flag in ("maximize", "differentiable", *([] if isinstance(optimizer, AdaPM) else ["capturable"])):
        with pytest.raises(ValueError, match=f"does not take {flag}=True: "):
            cls(model.named_parameters(), RATE, **{flag: True})
        with pytest.raises(ValueError, match=f"does not take {flag}=True: "):
            optimizer.add_param_group({"params": [("late.bias", nn.Parameter(torch.zeros(3)))], flag: True})


@pytest.mark.parametrize("cls", [AdaPM, AdaPMMini, AdamMini])
def test_flags_that_are_off_or_ask_for_speed_change_nothing(cls: type[AdaPM]):
    model, other = tiny_gpt2(), tiny_gpt2()
    flags: dict[str, Any] = {"maximize": False, "capturable": False, "differentiable": False}
    train(model, cls.for_model(model, RATE, foreach=True, fused=True, **flags), range(3))
    train(other, cls.for_model(other, RATE), range(3))
    assert same_bits(model, other)


@pytest.mark.parametrize("name", OURS)
def test_complex_weights_are_refused(name: str):
    model = tiny_gpt2()
    optimizer = build(name, model, lr=RATE)
    late = nn.Parameter(torch.zeros(6, dtype=torch.complex64))
    with pytest.raises(ValueError, match=r"torch\.complex64; only real floating-point parameters are trained"):
        optimizer.add_param_group({"params": [("transformer.h.0.late.bias", late)]})
