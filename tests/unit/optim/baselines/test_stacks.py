"""Experts in one tensor are so many matrices: every optimizer moves them as it moves the same maps apart."""

import copy

import pytest
import torch
from torch import Tensor, nn

from optim.baselines.shampoo import Shampoo
from optim.builder import build
from optim.catalog import entry, names
from optim.errors import UnplacedWeightsError
from optim.state import state_bytes
from tests.factories.architectures import Experts
from tests.plans.architectures import ARCHITECTURES

EXPERTS, WIDTH, INNER = 3, 8, 6

DRAWN = {"adapm", "adapm-mini", "golore", "apollo", "apollo-mini"}
"""The optimizers that draw sketches by the names of blocks; their own tests compare experts with twins of the same
draws."""


class Expert(nn.Module):
    """An expert, as Phi-3 keeps its MLP."""

    def __init__(self) -> None:
        super().__init__()
        self.gate_up_proj = nn.Linear(WIDTH, 2 * INNER, bias=False)
        self.down_proj = nn.Linear(INNER, WIDTH, bias=False)


def numbers(shape: torch.Size, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def cases() -> list[tuple[str, bool]]:
    """(name, turned); SOAP's basis of what no gradient has reached yet is arbitrary, and another one turned."""
    pairs = [(name, turned) for name in names() if name not in DRAWN for turned in (False, True)]
    return [case for case in pairs if case != ("soap", True)]


@pytest.mark.parametrize(("name", "turned"), cases())
def test_experts_move_as_the_same_maps_apart(name, turned):
    stack_model = nn.ModuleDict({"experts": Experts(turned, EXPERTS)})
    experts = nn.ModuleList(Expert() for _ in range(EXPERTS))
    pairs: list[tuple[Tensor, Tensor]] = [
        (stack_model["experts"].get_parameter(map_name), expert.get_parameter(f"{map_name}.weight"))
        for expert in experts
        for map_name in ("gate_up_proj", "down_proj")
    ]
    optimizers = build(name, stack_model, lr=0.01), build(name, experts, lr=0.01)
    with torch.no_grad():
        for seed, (stack, matrix) in enumerate(pairs):
            matrix.copy_(numbers(matrix.shape, seed))
            view(stack, seed // 2, turned).copy_(matrix)
    for step in range(1, 4):
        for stack, _ in pairs:
            stack.grad = torch.zeros_like(stack)
        for seed, (stack, matrix) in enumerate(pairs):
            size = 0.0 if step == 1 and seed < 2 else 10.0 ** -(seed // 2)  # an idle expert, and others of many sizes
            matrix.grad = size * numbers(matrix.shape, 100 * step + seed)
            assert stack.grad is not None
            view(stack.grad, seed // 2, turned).copy_(matrix.grad)
        for optimizer in optimizers:
            optimizer.step()
    for seed, (stack, matrix) in enumerate(pairs):
        torch.testing.assert_close(view(stack.detach(), seed // 2, turned), matrix.detach(), rtol=1e-4, atol=2e-5)


def view(stack: Tensor, expert: int, turned: bool) -> Tensor:
    """Return that expert's matrix, out × in."""
    return stack[expert].mT if turned else stack[expert]


@pytest.mark.parametrize("name", ["adafactor", "came", "sm3", "soap"])
def test_the_state_of_experts_is_saved_loaded_and_copied(name):
    model = nn.ModuleDict({"experts": Experts(False, EXPERTS)})
    optimizer = build(name, model, lr=0.01)
    step(model, optimizer, 1)
    step(model, optimizer, 2)
    assert "0.exp_avg" in optimizer.state[model.get_parameter("experts.down_proj")] or name == "sm3"
    twin_model, twin = copy.deepcopy((model, optimizer))
    third = copy.deepcopy(model)
    loaded = build(name, third, lr=0.01)
    loaded.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    assert state_bytes(optimizer) == state_bytes(twin) == state_bytes(loaded)
    for module, stepper in ((model, optimizer), (twin_model, twin), (third, loaded)):
        step(module, stepper, 3)
    for value, copied, restored in zip(model.parameters(), twin_model.parameters(), third.parameters(), strict=True):
        assert torch.equal(value, copied)
        assert torch.equal(value, restored)


def step(model: nn.Module, optimizer: torch.optim.Optimizer, seed: int) -> None:
    for value in model.parameters():
        value.grad = numbers(value.shape, seed)
    optimizer.step()


def test_scale_normalises_the_neurons_of_experts_however_they_are_stored():
    for architecture, axis in (("mixtral", 0), ("gpt-oss", 1)):
        groups = build("scale", ARCHITECTURES[architecture](), lr=0.01).param_groups
        axes = {name: group["output_axis"] for group in groups for name in group["param_names"]}
        experts = {axes[name] for name in axes if name.endswith(("gate_up_proj", "down_proj"))}
        assert experts == {axis}


@pytest.mark.parametrize("name", ["adamw", "scale", "shampoo", "muon", "soap"])
def test_biases_of_experts_are_vectors_and_never_decay(name):
    groups = build(name, ARCHITECTURES["gpt-oss"](), lr=0.01, options={"weight_decay": 0.5}).param_groups
    decays = {name: group["weight_decay"] for group in groups for name in group["param_names"]}
    bias_decays = {value for name, value in decays.items() if name.endswith("_proj_bias")}
    assert bias_decays == {0.0}


@pytest.mark.parametrize("name", ["scale", "shampoo"])
def test_tensors_that_are_no_matrices_are_refused_by_name(name):
    with pytest.raises(UnplacedWeightsError, match=r"weight \(2, 3, 5, 5\) is none of these; freeze it, or choose"):
        build(name, nn.Conv2d(3, 2, 5), lr=0.01)


@pytest.mark.parametrize("name", names())
def test_what_is_empty_is_no_obstacle(name):
    model = Expert()
    model.nothing = nn.Parameter(torch.zeros(0, 4))
    options = {"unknown": "full"} if entry(name).has_plan else {}
    optimizer = build(name, model, lr=0.01, options=options)
    for seed in range(3):
        step(model, optimizer, seed)
    assert all(bool(value.isfinite().all()) for value in model.parameters())


def test_shampoo_finds_roots_where_single_precision_does_not_converge():
    """Statistics of an embedding of which a batch knows few tokens: all other rows are zero."""
    from optim.baselines.shampoo import RIDGE, _inverse_fourth_root

    generator = torch.Generator().manual_seed(0)
    statistics = torch.zeros(256, 256)
    rows = torch.randperm(256, generator=generator)[:28]
    samples = torch.randn(28, 128, generator=generator)
    statistics[rows[:, None], rows] = samples @ samples.T
    root = _inverse_fourth_root(statistics)
    exact = torch.linalg.eigh(statistics.double())
    values = (exact.eigenvalues / exact.eigenvalues[-1]).clamp_min(RIDGE) ** -0.25
    expected = (exact.eigenvectors * values) @ exact.eigenvectors.T
    torch.testing.assert_close(root, expected.float(), rtol=1e-3, atol=1e-3)


def test_an_idle_expert_of_shampoos_comes_to_rest():
    """Its momentum fades until no square of it is a number: the graft must not make a step of that."""
    weight = nn.Parameter(numbers(torch.Size((2, 16, 24)), 1))
    optimizer = Shampoo([("experts", weight)], 1e-3, weight_decay=0.0)
    for step in range(520):
        if step == 300:
            original = weight[1].detach().clone()
        weight.grad = 1e-3 * numbers(weight.shape, step)
        if step >= 20:
            weight.grad[1] = 0.0
        optimizer.step()
    assert (weight[1] - original).abs().max() <= 1e-6
