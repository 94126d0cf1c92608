"""Batches: like blocks together, bounded, with their state side by side, and the same result as one block at a time."""

import copy
import io
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.transient_memory import peak_transient_bytes
from optim.adapm import AdaPM, AdaPMMini, groups
from optim.plan.blocks import FirstMoment
from tests.factories.architectures import Experts
from worker.checks.tiny_models import tiny_gpt2, tiny_llama, train

CLASSES = pytest.mark.parametrize("cls", [AdaPM, AdaPMMini])


def chunks_of(elements: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("optim.adapm.devices._CPU_CHUNK_ELEMENTS", elements)
    monkeypatch.setattr("optim.adapm.devices._ACCELERATOR_CHUNK_ELEMENTS", elements)
    monkeypatch.setattr(groups, "ALWAYS_ELEMENTS", 1)


@CLASSES
@pytest.mark.parametrize(
    ("tiny", "solver", "atol"),
    [(tiny_gpt2, "subspace", 1e-12), (tiny_llama, "subspace", 1e-12), (tiny_gpt2, "svd", 1e-9)],
)
def test_batches_move_the_weights_as_single_blocks_do(monkeypatch, cls, tiny, solver, atol):
    """Also where some blocks have no gradient at the third step."""
    model, twin = tiny().double(), tiny().double()
    optimizer = cls.for_model(model, 1e-3, solver=solver, refresh_interval=3)
    moved(model, optimizer, range(6), idle="1.mlp")
    chunks_of(1, monkeypatch)
    moved(twin, cls.for_model(twin, 1e-3, solver=solver, refresh_interval=3), range(6), idle="1.mlp")
    for weight, other in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(weight, other, rtol=0.0, atol=atol)


class _Operators(TorchDispatchMode):
    """Counts what torch is asked to do, views included."""

    count = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        self.count += 1
        return func(*args, **(kwargs or {}))


@CLASSES
def test_the_operators_of_a_step_do_not_grow_with_the_number_of_experts(cls):
    counts = []
    for number in (4, 32):
        model = nn.ModuleDict({"experts": Experts(False, number)})
        optimizer = cls.for_model(model, 1e-3)
        for value in model.parameters():
            value.grad = torch.randn_like(value)
        for _ in range(2):  # the sketches of the first are drawn, those of the second kept
            optimizer.step()
        with _Operators() as operators:
            optimizer.step()
        counts.append(operators.count)
    assert counts[0] == counts[1] <= 340


_EXPERTS, _IDLE, _SICK = 5, 2, 3
"""The number of experts, and two of them."""


def experts(turned: bool, dtype: torch.dtype = torch.float64) -> nn.Module:
    return nn.ModuleDict({"experts": Experts(turned, _EXPERTS)}).to(dtype)


def route(model: nn.Module, steps: range, *, sick_from: int = 99) -> Iterator[None]:
    """Gradients of each step: none for a stack at the third; zero for an idle expert at first; a sick one's, at last,
    NaN."""
    for step in steps:
        drawn = torch.Generator().manual_seed(step)
        for value in model.parameters():
            grad = torch.randn(value.shape, generator=drawn, dtype=torch.float64).to(value.dtype)
            if step < 4:
                grad[_IDLE] = 0.0
            if step >= sick_from:
                grad[_SICK] = torch.nan
            value.grad = None if step == 2 and value.shape[1] == 8 else grad
        yield


@CLASSES
@pytest.mark.parametrize("turned", [False, True])
def test_a_stack_of_experts_moves_as_its_experts_do_one_by_one(monkeypatch, cls, turned):
    grouped_model, single_model = experts(turned), experts(turned)
    for model, one_by_one in ((grouped_model, False), (single_model, True)):
        if one_by_one:
            chunks_of(1, monkeypatch)
        optimizer = cls.for_model(model, 1e-3, refresh_interval=5)
        for _ in route(model, range(8), sick_from=7):
            optimizer.step()
    for weight, other in zip(grouped_model.parameters(), single_model.parameters(), strict=True):
        torch.testing.assert_close(weight, other, rtol=0.0, atol=1e-12, equal_nan=True)
        well = [index for index in range(_EXPERTS) if index != _SICK]
        assert weight[well].isfinite().all() and weight[_SICK].isnan().all()


@CLASSES
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_state_of_a_stack_is_one_tensor_under_a_name_for_each_expert_and_loads_bit_for_bit(cls, dtype):
    model = experts(False, dtype)
    optimizer = cls.for_model(model, 1e-3)
    for _ in route(model, range(3)):
        optimizer.step()
    stack = model.get_parameter("experts.down_proj")
    state = optimizer.state[stack]
    names = {
        key
        for block in optimizer.plan.parameter_blocks["experts.down_proj"]
        for key in map(block.key, block.state_shapes)
    }
    assert {"step", *names} == set(state)
    lefts = [state[f"{index}.momentum_left"] for index in range(_EXPERTS)]
    assert len({left.untyped_storage().data_ptr() for left in lefts}) == 1
    loaded_model = copy.deepcopy(model)
    loaded = cls.for_model(loaded_model, 1e-3)
    old_state = copy.deepcopy(optimizer.state_dict())
    for saved in old_state["state"].values():  # as an earlier release saved it: a tensor of its own for each expert
        saved.update({key: value.clone() for key, value in saved.items()})
    loaded.load_state_dict(old_state)
    for trained, chosen in ((model, optimizer), (loaded_model, loaded)):
        for _ in route(trained, range(3, 6)):
            chosen.step()
    for weight, two in zip(model.parameters(), loaded_model.parameters(), strict=True):
        assert torch.equal(weight, two)


@CLASSES
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_one_block_that_goes_wrong_leaves_the_others_of_its_batch_alone(cls, bad):
    model = tiny_gpt2()
    optimizer = cls.for_model(model, 1e-3)
    train(model, optimizer, range(2))
    healthy = copy.deepcopy((model, optimizer))
    for value, twin in zip(model.parameters(), healthy[0].parameters(), strict=True):
        value.grad = 1e-3 * torch.randn_like(value)
        twin.grad = value.grad.clone()
    first, second, third = (
        getattr(model.get_submodule(f"transformer.h.{layer}.mlp"), name).weight.grad
        for layer, name in ((0, "c_fc"), (1, "c_fc"), (1, "c_proj"))
    )
    first.fill_(bad)
    second[:, 5:] = 0.0
    third.zero_()
    optimizer.step()
    healthy[1].step()
    touched = {
        "transformer.h.0.mlp.c_fc.weight",
        "transformer.h.1.mlp.c_fc.weight",
        "transformer.h.1.mlp.c_proj.weight",
    }
    for (name, value), expected in zip(model.named_parameters(), healthy[0].parameters(), strict=True):
        if name not in touched:
            torch.testing.assert_close(value, expected)
        elif "h.1" in name:
            assert value.isfinite().all()


class _Uneven(nn.Module):
    """Blocks of very different sizes, many of them small: an embedding, and layers of MLPs."""

    def __init__(self, vocabulary: int, layers: int) -> None:
        super().__init__()
        self.wte = nn.Embedding(vocabulary, 96)
        self.mlp = nn.ModuleList(
            nn.ModuleDict({"up_proj": nn.Linear(96, 384), "down_proj": nn.Linear(384, 96)}) for _ in range(layers)
        )


@CLASSES
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("vocabulary", "layers"), [(8000, 2), (20, 8)])
def test_a_step_takes_no_more_than_three_times_the_largest_block_for_a_while(
    monkeypatch, cls, dtype, vocabulary, layers
):
    """In float32, the type of the arithmetic, also where the weights are bfloat16."""
    monkeypatch.setattr(groups, "ALWAYS_ELEMENTS", 1)
    model = _Uneven(vocabulary, layers).to(dtype)
    optimizer = cls.for_model(model, 1e-3, compile=False)
    for value in model.parameters():
        value.grad = torch.randn_like(value)
    optimizer.step()
    steps: Tensor = optimizer.state[model.wte.weight]["step"]
    peak = peak_transient_bytes(optimizer.step, torch.device("cpu"))
    assert steps == 2
    assert peak <= 3 * 4 * optimizer.plan.largest


def moved(model: nn.Module, optimizer: AdaPM, steps: range, *, idle: str = "") -> None:
    """Steps on gradients of a few directions and noise; at the third, parameters of that name have none."""
    for step in steps:
        drawn = torch.Generator().manual_seed(step)
        for name, value in model.named_parameters():
            grad = torch.randn(value.shape, generator=drawn, dtype=torch.float64)
            value.grad = None if idle and idle in name and step == 2 else grad.to(value.dtype)
        optimizer.step()


def factors_of(model: nn.Module, optimizer: AdaPM) -> list[Tensor]:
    return [
        value
        for parameter in model.parameters()
        for key, value in optimizer.state[parameter].items()
        if "momentum" in key
    ]


def test_the_state_of_blocks_of_one_shape_is_brought_together_once_and_loads_bit_for_bit():
    model = tiny_gpt2()
    optimizer = AdaPM.for_model(model, 1e-3)
    moved(model, optimizer, range(1))
    storages = {value.untyped_storage().data_ptr() for value in factors_of(model, optimizer)}
    low_rank = [block for block in optimizer.plan if block.first_moment is FirstMoment.LOW_RANK]
    assert len(storages) == 2 * len({block.shape for block in low_rank}) < len(low_rank)
    moved(model, optimizer, range(1, 3))
    assert storages == {value.untyped_storage().data_ptr() for value in factors_of(model, optimizer)}
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    assert file.tell() < 1.2 * optimizer.plan.state_bytes + 60_000, "what is shared is saved once"
    file.seek(0)
    twin = copy.deepcopy(model)
    loaded = AdaPM.for_model(twin, 1e-3)
    loaded.load_state_dict(torch.load(file))
    for trained, chosen in ((model, optimizer), (twin, loaded)):
        moved(trained, chosen, range(3, 5))
    assert all(torch.equal(weight, two) for weight, two in zip(model.parameters(), twin.parameters(), strict=True))


def test_blocks_that_sit_out_a_step_keep_their_state_and_its_place():
    model = tiny_gpt2()
    optimizer = AdaPM.for_model(model, 1e-3)
    moved(model, optimizer, range(2))
    before = {value.data_ptr(): value.clone() for value in factors_of(model, optimizer)}
    moved(model, optimizer, range(2, 3), idle="h.1.mlp")
    after = {value.data_ptr(): value for value in factors_of(model, optimizer)}
    assert before.keys() == after.keys()
    idle = [
        value
        for name, parameter in model.named_parameters()
        if "h.1.mlp" in name
        for key, value in optimizer.state[parameter].items()
        if "momentum" in key
    ]
    pointers = [pointer for pointer, value in after.items() if torch.equal(value, before[pointer])]
    assert sorted(pointers) == sorted(value.data_ptr() for value in idle)
