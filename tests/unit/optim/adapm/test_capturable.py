"""Steps that a CUDA graph may capture, without a device: the numbers of an ordinary step, and the same work every time.

That a graph really captures and repeats them, `tests/gpu/test_one_device.py` shows on a GPU.
"""

import copy
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from benchmarks.step_operations import as_captured, as_on_cuda
from optim.adapm import AdaPM, AdaPMMini, devices
from worker.checks.tiny_models import tiny_gpt2, tiny_llama

RATE = 2.0**-10
"""A float32, as a tensor has it."""
CLASSES = pytest.mark.parametrize("cls", [AdaPM, AdaPMMini])


def give_gradients(model: nn.Module, step: int) -> None:
    drawn = torch.Generator().manual_seed(step)
    for value in model.parameters():
        value.grad = torch.randn(value.shape, generator=drawn).to(value)


def difference(model: nn.Module, other: nn.Module) -> float:
    pairs = zip(model.parameters(), other.parameters(), strict=True)
    return max(float((a.detach().double() - b.detach().double()).abs().max()) for a, b in pairs)


@pytest.mark.parametrize(
    ("cls", "tiny", "options", "rounding"),
    [
        (AdaPM, tiny_gpt2, {}, 1e-8),
        (AdaPMMini, tiny_llama, {"debias_moments": True}, 1e-7),
        (AdaPMMini, tiny_gpt2, {"inner_iterations": 2, "clip": None}, 1e-8),
        (AdaPM, tiny_llama, {"bias_correction": False}, 1e-8),
    ],
)
def test_the_numbers_are_those_of_an_ordinary_step(cls, tiny, options, rounding):
    """Outside of graphs and as captured, refreshes between; weights of some 0.1 differ by their last bit at most."""
    ordinary, eager, captured = (tiny() for _ in range(3))
    plain = cls.for_model(ordinary, RATE, refresh_interval=3, **options)
    capturable = [
        cls.for_model(model, torch.tensor(RATE), refresh_interval=3, capturable=True, **options)
        for model in (eager, captured)
    ]
    for step in range(7):
        for model in (ordinary, eager, captured):
            give_gradients(model, step)
        rate = RATE / (1 + step)
        plain.param_groups[0]["lr"] = float(torch.tensor(rate))
        for optimizer in capturable:
            optimizer.param_groups[0]["lr"].fill_(rate)
        plain.step()
        capturable[0].step()
        if step % 3 == 0:
            capturable[1].step()
        else:
            with as_captured():
                capturable[1].step()
    assert difference(eager, captured) == 0.0
    assert difference(ordinary, eager) <= rounding
    for model, optimizer in zip((eager, captured), capturable, strict=True):
        assert {float(optimizer.state[value]["step"]) for value in model.parameters()} == {7.0}


class _Recorded(TorchDispatchMode):
    """The recorded calls of torch: operations, numbers among their arguments, layouts of their inputs and outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[object] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if func.namespace == "aten":  # and not the profiler's
            self.found.append((str(func), tree_map(_layout, (args, kwargs, result))))
        return result


def _layout(value: object) -> object:
    return (value.shape, value.stride(), value.dtype, value.device) if isinstance(value, Tensor) else value


@CLASSES
@pytest.mark.parametrize("options", [{}, {"debias_moments": True}, {"matmul_precision": "high"}])
def test_a_captured_step_is_the_same_work_every_time_and_nothing_comes_from_the_host(cls, options):
    """On `meta`, where what the host would read back is an error."""
    model = tiny_llama().to("meta")
    rate = torch.tensor(RATE, device="meta")
    optimizer = cls.for_model(model, RATE, capturable=True, **options)
    optimizer.param_groups[0]["lr"] = rate
    for value in model.parameters():
        value.grad = torch.empty_like(value)
    with as_on_cuda() as counted:
        with as_captured(optimizer, captures=False):
            optimizer.step()
        steps = []
        for _ in range(2):
            rate.fill_(0.5)
            counts = counted.found.by_name.copy()
            with as_captured(optimizer), _Recorded() as recorded:
                optimizer.step()
            steps.append((recorded.found, counted.found.by_name - counts))
    assert steps[0] == steps[1]
    assert counted.found.copies_from_host == 0
    operations = [name for name, _ in steps[0][0]]
    assert len(operations) > 50
    assert not any("local_scalar" in name or "randn" in name or "normal" in name for name in operations)
    cpu = torch.device("cpu")
    operands = [str(operand) for _, operand in steps[0][0]]
    assert not any(repr(cpu) in operand for operand in operands)


def test_what_a_graph_reads_stays_though_much_is_made_after_it():
    model = tiny_gpt2()
    optimizer = AdaPM.for_model(model, RATE, capturable=True)
    give_gradients(model, 0)
    optimizer.step()
    with as_captured():
        optimizer.step()
    tensors = set(devices._READ_BY_GRAPHS)
    assert tensors
    for number in range(300):
        devices.constant(1.0 + number, torch.float32, torch.device("cpu"))
    with as_captured():
        optimizer.step()
    assert tensors <= devices._READ_BY_GRAPHS


def test_what_is_made_while_a_graph_records_is_that_graphs_alone():
    """It has no values before the graph is replayed."""
    with as_captured():
        constant = devices.constant(0.123, torch.float32, torch.device("cpu"))
    assert devices.constant(0.123, torch.float32, torch.device("cpu")) is not constant


def test_a_capture_before_its_time_is_refused():
    model = tiny_gpt2()
    give_gradients(model, 0)
    with as_captured(), pytest.raises(RuntimeError, match="only with capturable=True"):
        AdaPM.for_model(model, RATE).step()
    optimizer = AdaPM.for_model(model, RATE, capturable=True)
    with as_captured(), pytest.raises(RuntimeError, match="take three steps of AdaPM with all gradients before"):
        optimizer.step()
    assert not optimizer.state
    optimizer.step()
    optimizer.load_state_dict(optimizer.state_dict())
    with as_captured(), pytest.raises(RuntimeError, match="after loading a state"):
        optimizer.step()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bf16_stochastic_round": True}, "take master_weights"),
        ({"solver": "svd"}, "take subspace"),
    ],
)
def test_what_a_graph_cannot_repeat_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        AdaPM.for_model(tiny_gpt2(), RATE, capturable=True, **options)


def test_a_schedule_writes_the_rate_where_a_graph_reads_it_and_master_weights_stay_where_they_are():
    model = tiny_gpt2(dtype=torch.bfloat16)
    rate = torch.tensor(RATE)
    optimizer = AdaPM.for_model(model, rate, capturable=True, master_weights=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0 / (1 + step))
    give_gradients(model, 0)
    optimizer.step()
    places = {value.data_ptr() for state in optimizer.state.values() for value in state.values()}
    schedule.step()
    assert optimizer.param_groups[0]["lr"] is rate
    assert float(rate) == RATE / 2
    with torch.no_grad():
        for value in model.parameters():
            value.mul_(2.0)  # as somebody does who loads weights: the copies follow
    with as_captured():
        optimizer.step()
    assert places == {value.data_ptr() for state in optimizer.state.values() for value in state.values()}
    for value in model.parameters():
        assert torch.equal(optimizer.state[value]["master_weight"].bfloat16(), value)


@pytest.mark.parametrize("saves", [False, True])
def test_a_state_goes_from_a_capturable_training_to_another_kind_and_back(saves):
    """And whether graphs capture it, the one says that loads."""
    model = tiny_gpt2()
    optimizer = AdaPM.for_model(model, RATE, capturable=saves)
    for step in range(2):
        give_gradients(model, step)
        optimizer.step()
    loaded_model = copy.deepcopy(model)
    loaded = AdaPM.for_model(loaded_model, RATE, capturable=not saves)
    loaded.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    assert loaded.param_groups[0]["capturable"] is not saves
    assert {float(loaded.state[value]["step"]) for value in loaded_model.parameters()} == {2.0}
    for step in range(2, 4):
        for trained, chosen in ((model, optimizer), (loaded_model, loaded)):
            give_gradients(trained, step)
            chosen.step()
    assert difference(model, loaded_model) <= 1e-8


def test_parameters_that_are_behind_have_their_own_corrections_in_a_graph():
    """A frozen block is thawed: its counter is another, and so are its 1 - b^t."""
    models = [tiny_gpt2() for _ in range(2)]
    optimizers = [AdaPM.for_model(model, RATE, capturable=True, debias_moments=True) for model in models]
    for step in range(4):
        for k, (model, optimizer) in enumerate(zip(models, optimizers, strict=True)):
            give_gradients(model, step)
            if step == 0:
                model.get_parameter("transformer.h.1.mlp.c_fc.weight").grad = None
            if step > 1 and k == 1:
                with as_captured():
                    optimizer.step()
            else:
                optimizer.step()
    assert difference(*models) == 0.0
