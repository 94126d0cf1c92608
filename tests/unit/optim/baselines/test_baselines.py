"""The baselines against their literal twins, each written from its paper."""

import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from optim.adapm.low_rank import gaussian_sketch
from optim.baselines.apollo import Apollo
from optim.baselines.asgd import AcceleratedSGD
from optim.baselines.galore import Fira, GaLore, GoLore
from optim.baselines.scale import Scale
from optim.builder import build
from optim.errors import MissingPackageError
from tests.twins import baselines as twins
from tests.twins.adapm import head_groups
from tests.twins.baselines import adam_mini
from worker.checks.tiny_models import tiny_gpt2, tiny_llama, train
from worker.footprint.count import footprint

SHAPES = [(6, 9), (9, 6), (7, 7)]
LR, STEPS = 0.01, 12
ADAM: dict[str, Any] = {"b1": 0.9, "b2": 0.95, "eps": 1e-8, "wd": 0.1}


def drawn(shape: tuple[int, ...], seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def stream(shape: tuple[int, ...]) -> list[Tensor]:
    """Gradients with a steady part, as real ones have."""
    return [0.1 * (drawn(shape, 1) + drawn(shape, 2 + step)) for step in range(STEPS)]


class OneMatrix(nn.Module):
    """A model of a single matrix, `w`."""

    def __init__(self, w: Tensor) -> None:
        super().__init__()
        self.w = nn.Parameter(w.clone())


def after(model: OneMatrix, optimizer: torch.optim.Optimizer, gradients: list[Tensor]) -> Tensor:
    for gradient in gradients:
        model.w.grad = gradient.clone()
        optimizer.step()
    return model.w.detach()


def built(name: str, shape: tuple[int, int], **options: Any) -> tuple[Tensor, Tensor, list[Tensor]]:
    """(weights that the catalog's optimizer reaches, start, gradients)."""
    start, gradients = drawn(shape, 0), stream(shape)
    model = OneMatrix(start)
    return after(model, build(name, model, lr=LR, options=options), gradients), start, gradients


EPS_PLACED_ELSEWHERE = 1e-6
"""The library's SOAP, as its authors', adds eps before it debiases the second moment."""


def close(actual: Tensor, expected: Tensor, tolerance: float = 1e-9) -> None:
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    ("name", "options", "twin", "numbers"),
    [
        ("sgd", {"weight_decay": 0.1}, twins.sgd, (LR, 0.0, 0.1)),
        ("nesterov", {"weight_decay": 0.1}, twins.sgd, (LR, 0.9, 0.1)),
        ("lion", {}, twins.lion, (LR, 0.9, 0.99, 0.6)),
        ("signsgd", {"momentum": 0.0}, twins.signum, (LR, 0.0, 0.6)),
        ("signsgd", {"momentum": 0.9}, twins.signum, (LR, 0.9, 0.6)),
        ("ademamix", {"slow_warmup": None}, twins.ademamix, (None, LR, 0.9, 0.999, 0.9999, 2.0, 1e-8, 0.1)),
        ("ademamix", {"slow_warmup": 8}, twins.ademamix, (8, LR, 0.9, 0.999, 0.9999, 2.0, 1e-8, 0.1)),
        ("ademamix", {"slow_warmup": 100}, twins.ademamix, (100, LR, 0.9, 0.999, 0.9999, 2.0, 1e-8, 0.1)),
        ("adopt", {}, twins.adopt, (LR, 0.9, 0.9999, 1e-6, 0.1)),
        ("adafactor", {}, twins.adafactor, (LR, 0.9, 0.1)),
        ("came", {}, twins.came, (LR, 0.9, 0.999, 0.9999, 0.1)),
        ("sm3", {"weight_decay": 0.1}, twins.sm3, (LR, 0.9, 0.1)),
        ("mars", {"weight_decay": 0.0}, twins.mars, (LR, 0.95, 0.99, 0.025, 1e-8)),
        ("shampoo", {"precondition_frequency": 5}, twins.shampoo, (5, LR, 0.9, 0.95, 0.1)),
    ],
)
def test_an_optimizer_of_the_catalog_is_its_twin(name, options, twin, numbers, shape):
    end, start, gradients = built(name, shape, **options)
    close(end, twin(start, gradients, *numbers))


@pytest.mark.parametrize("name", ["ademamix", "adopt"])
def test_decays_of_a_ten_thousandth_reach_the_state_of_bfloat16_weights(name):
    """In bfloat16 0.9999 times a number is that number."""
    model = OneMatrix(torch.zeros(2, 2, dtype=torch.bfloat16))
    optimizer = build(name, model, lr=LR)
    key = "exp_avg_sq" if name == "adopt" else "exp_avg_slow"
    after(model, optimizer, [torch.ones(2, 2, dtype=torch.bfloat16)] * 2)
    average = optimizer.state[model.w][key].clone()
    after(model, optimizer, [torch.zeros(2, 2, dtype=torch.bfloat16)])
    torch.testing.assert_close(optimizer.state[model.w][key], average * 0.9999, rtol=1e-6, atol=0.0)


def test_mars_moves_as_far_where_gradients_are_tiny():
    """1e-15 beside v, inside the root, and eps before debiasing would make these steps shorter."""
    start = drawn((6, 9), 0)
    gradients = [1e-6 * gradient.sign() for gradient in stream((6, 9))]
    model = OneMatrix(start)
    end = after(model, build("mars", model, lr=LR, options={"weight_decay": 0.0}), gradients)
    close(end, twins.mars(start, gradients, LR, 0.95, 0.99, 0.025, 1e-8))


def test_soap_without_preconditioners_is_adamw_one_step_late():
    end, start, gradients = built("soap", (6, 9), max_precondition_dim=1, weight_decay=0.0)
    close(end, twins.adamw(start, gradients[1:], LR, 0.95, 0.95, 1e-8, 0.0), EPS_PLACED_ELSEWHERE)


def test_soap_in_the_right_basis_takes_adams_steps_there():
    """With gradients u v^T, the eigenbases are u and v, where Adam's steady step is ± lr along u v^T."""
    u, v = nn.functional.normalize(drawn((6,), 1), dim=0), nn.functional.normalize(drawn((9,), 2), dim=0)
    model = OneMatrix(torch.zeros(6, 9, dtype=torch.float64))
    optimizer = build("soap", model, lr=LR, options={"weight_decay": 0.0})
    close(after(model, optimizer, [torch.outer(u, v)] * 4), -3 * LR * torch.outer(u, v))


def quadratic(shape: tuple[int, ...]) -> Tensor:
    """Curvatures i^-2 of a least-squares problem whose answer is 0."""
    return torch.arange(1, 1 + torch.zeros(shape).numel(), dtype=torch.float64).reshape(shape) ** -2


@pytest.mark.parametrize("gradients_size", [1.0, 1e-7])
def test_schedule_free_adamw_is_its_twin(gradients_size):
    start, curvature = drawn((6, 9), 0), gradients_size * quadratic((6, 9))
    model = OneMatrix(start)
    optimizer = build("schedule-free-adamw", model, lr=LR)
    for _ in range(STEPS):
        after(model, optimizer, [curvature * model.w.detach()])
    optimizer.eval()  # type: ignore[attr-defined]  # Need.MODES
    expected = twins.schedule_free_adamw(start, lambda y: curvature * y, STEPS, LR, 0.9, 0.999, 1e-8, 0.1)
    close(model.w.detach(), expected)


@pytest.mark.parametrize("beta", [1.0, 0.3, 0.1])
def test_accelerated_sgd_is_its_twin(beta):
    start, curvature = drawn((6, 9), 0), quadratic((6, 9))
    model = OneMatrix(start)
    optimizer = build("asgd", model, lr=0.5, options={"beta": beta})
    assert isinstance(optimizer, AcceleratedSGD)
    for _ in range(STEPS):
        after(model, optimizer, [curvature * model.w.detach()])
    optimizer.eval()
    expected = twins.accelerated_sgd(start, lambda U: curvature * U, STEPS, 0.5, 0.5 * beta**-0.5, beta)
    close(model.w.detach(), expected)


def leading(rank: int) -> twins.Projection:
    """Singular vectors whose largest element is positive."""

    def project(G: Tensor, t: int) -> Tensor:
        columns = torch.linalg.svd(G, full_matrices=False).U[:, :rank].unbind(1)
        return torch.stack([column if max(column, key=abs) > 0 else -column for column in columns], dim=1)

    return project


def haar(rank: int, experts: int, expert: int) -> twins.Projection:
    """The draws of the real one, made orthonormal column by column (Gram–Schmidt)."""

    def project(G: Tensor, t: int) -> Tensor:
        columns: list[Tensor] = []
        drawn_all = gaussian_sketch(0, t, "w", torch.empty(experts, G.shape[0], rank, dtype=G.dtype))
        for column in drawn_all[expert].unbind(1):
            remainder = column - sum((c * (c @ column) for c in columns), torch.zeros_like(column))
            columns.append(remainder / remainder.norm())
        return torch.stack(columns, dim=1)

    return project


def random_sketch(rank: int, experts: int, expert: int) -> twins.Projection:
    """The draws of APOLLO, P^T."""

    def project(G: Tensor, t: int) -> Tensor:
        began = 1 + (t - 1) // 5 * 5
        drawn_all = gaussian_sketch(0, began, "w", torch.empty(experts, rank, G.shape[0], dtype=G.dtype))
        return drawn_all[expert].T.div(rank**0.5)

    return project


def optimizer_of(cls: Any, w: nn.Parameter, output_axis: int = 0, **options: Any) -> torch.optim.Optimizer:
    """The optimizer on that one parameter, every flag of its kind set."""
    flags = {"projected": True, "orthogonal": True, "output_axis": output_axis}
    optimizer: torch.optim.Optimizer = cls([{"params": [("w", w)], **flags}], LR, **options)
    return optimizer


LAYOUTS = [((), (6, 9), 0), ((), (9, 6), 0), ((), (7, 7), 0), ((), (7, 7), 1), ((3,), (6, 9), 0), ((3,), (7, 7), 1)]
"""(experts, matrix as it is stored, the axis that counts outputs)."""


def each_matrix(
    cls: Any, layout: tuple[tuple[int, ...], tuple[int, int], int], **options: Any
) -> list[tuple[Tensor, Tensor, list[Tensor]]]:
    """(weights reached, start, gradients) of every matrix of a stack, inputs and outputs turned as formulas want it."""
    stack, stored, output_axis = layout
    start, gradients = drawn((*stack, *stored), 0), stream((*stack, *stored))
    model = OneMatrix(start)
    end = after(model, optimizer_of(cls, model.w, output_axis, **options), gradients)
    outputs = stored[output_axis]
    first = outputs < stored[1 - output_axis]  # which side is short, and of a square the inputs

    def turned(tensor: Tensor) -> list[Tensor]:
        oriented = tensor.mT if output_axis == 1 else tensor
        wide = oriented if first else oriented.mT
        return list(wide.reshape(-1, *wide.shape[-2:]).unbind())

    streams = zip(*(turned(gradient) for gradient in gradients), strict=True)
    parts = zip(turned(end), turned(start), streams, strict=True)
    return [(reached, began, list(of_one)) for reached, began, of_one in parts]


TINY_EPS = {**ADAM, "eps": 1e-12}
"""Authors of the GaLore family add eps before they debias: with this one that makes no difference."""


@pytest.mark.parametrize("name", ["galore", "fira"])
def test_the_signs_of_singular_vectors_change_nothing(name, monkeypatch):
    """Another LAPACK has others; the moments of the last interval are in the basis of that time."""
    end, start, _ = built(name, (6, 9), update_gap=3)
    svd = torch.linalg.svd

    def mirrored(matrix: Tensor, **options: Any) -> Any:
        U, S, V = svd(matrix, **options)
        signs = torch.tensor([-1.0, 1.0] * 3, dtype=U.dtype)
        return SimpleNamespace(U=U * signs, S=S, Vh=V * signs[:, None])

    monkeypatch.setattr(torch.linalg, "svd", mirrored)
    mirror, _, _ = built(name, (6, 9), update_gap=3)
    assert not torch.equal(end, start)
    close(mirror, end, 1e-12)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("cls", "more"), [(GaLore, {}), (GoLore, {"turn_momentum": True}), (Fira, {"outside": True})])
def test_the_galore_family_is_its_twin(cls, more, layout):
    parts = each_matrix(cls, layout, update_gap=5, eps=1e-12)
    for expert, (end, start, gradients) in enumerate(parts):
        rank = round(0.5 * min(start.shape))
        projection = haar(rank, len(parts), expert) if cls is GoLore else leading(rank)
        expected = twins.projected_adamw(start, gradients, projection, 5, 0.25, LR, **TINY_EPS, **more)
        close(end, expected, 1e-8)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("rank_ratio", "alpha"), [(0.5, 1.0), (None, 128**0.5)])
def test_apollo_is_its_twin(rank_ratio, alpha, layout):
    parts = each_matrix(Apollo, layout, update_gap=5, rank_ratio=rank_ratio, scale=alpha, eps=1e-12)
    for expert, (end, start, gradients) in enumerate(parts):
        rank = 1 if rank_ratio is None else round(0.5 * min(start.shape))
        sketch = random_sketch(rank, len(parts), expert)
        expected = twins.apollo(start, gradients, sketch, alpha, LR, **TINY_EPS, mini=rank_ratio is None)
        close(end, expected, 1e-8)


@pytest.mark.parametrize("cls", [Fira, Apollo])
def test_a_block_whose_gradient_was_zero_is_not_held_back_afterwards(cls):
    """The authors' 1e-8 beside the last norm would let it grow from there by 1 % a step only."""
    model = OneMatrix(torch.zeros(6, 9, dtype=torch.float64))
    gradient = drawn((6, 9), 1)
    end = after(model, optimizer_of(cls, model.w, weight_decay=0.0), [torch.zeros_like(gradient), gradient])
    assert float(end.norm()) > 0.1 * LR * 54**0.5


@pytest.mark.parametrize("cls", [GaLore, GoLore, Fira, Apollo])
def test_what_is_not_projected_is_adamw(cls):
    model, gradients = OneMatrix(drawn((6, 9), 0)), stream((6, 9))
    end = after(model, cls([("w", model.w)], LR), gradients)
    close(end, twins.adamw(drawn((6, 9), 0), gradients, LR, **ADAM))


@pytest.mark.parametrize("output_axis", [0, 1])
@pytest.mark.parametrize("last", [False, True])
def test_scale_is_its_twin(last, output_axis):
    model, gradients = OneMatrix(drawn((6, 9), 0)), stream((6, 9))
    groups = [{"params": [("w", model.w)], "output_axis": output_axis, "last": last}]
    end = after(model, Scale(groups, LR), gradients)
    close(end, twins.scale(drawn((6, 9), 0), gradients, LR, 0.9 if last else 0.0, output_axis, 0.1))


def placed(model) -> dict[str, tuple[int | None, bool]]:
    groups = build("scale", model, lr=0.01).param_groups
    return {name: (group["output_axis"], group["last"]) for group in groups for name in group["param_names"]}


def test_a_llama_normalises_rows_of_linear_maps_and_columns_of_its_embedding():
    axes = placed(tiny_llama())
    assert axes["model.embed_tokens.weight"] == (1, False)
    assert axes["lm_head.weight"] == (0, True)
    assert axes["model.norm.weight"] == (None, False)
    assert axes["model.layers.0.self_attn.q_proj.weight"] == axes["model.layers.0.mlp.down_proj.weight"] == (0, False)


def test_a_gpt2_normalises_columns_and_its_tied_embedding_is_the_last_layer():
    axes = placed(tiny_gpt2())
    assert axes["transformer.wte.weight"] == (0, True)
    assert axes["transformer.wpe.weight"] == (1, False)
    assert axes["transformer.h.0.attn.c_attn.weight"] == (1, False)


GROUPS = {
    "model.embed_tokens.weight": (0, 1),  # token by token
    "lm_head.weight": (0, 1),
    "q_proj.weight": (0, 8),  # head by head: four heads of 8, two for the keys
    "k_proj.weight": (0, 8),
    "v_proj.weight": (0, 1),  # neuron by neuron
    "o_proj.weight": (0, 1),
    "gate_proj.weight": (0, 1),
    "up_proj.weight": (0, 1),
    "down_proj.weight": (0, 1),
}


def groups_of(name: str, value: torch.Tensor) -> list[torch.Tensor] | None:
    for ending, (axis, size) in GROUPS.items():
        if name.endswith(ending):
            return head_groups((value.shape[0], value.shape[1]), axis, size)
    assert value.ndim == 1
    return None


def test_every_parameter_of_a_llama_is_its_twin():
    model = tiny_llama().double()
    optimizer = build("adam-mini", model, lr=0.01)
    generator = torch.Generator().manual_seed(0)
    start = {name: value.detach().clone() for name, value in model.named_parameters()}
    streams = {
        name: [torch.randn(value.shape, generator=generator, dtype=value.dtype) for _ in range(6)]
        for name, value in start.items()
    }
    for step in range(6):
        for name, value in model.named_parameters():
            value.grad = streams[name][step]
        optimizer.step()
    for name, value in model.named_parameters():
        decay = 0.1 if value.ndim > 1 else 0.0
        twin = adam_mini(start[name], streams[name], groups_of(name, value), 0.01, 0.9, 0.95, 1e-8, decay)
        torch.testing.assert_close(value.detach(), twin, rtol=1e-9, atol=1e-9)


NAMES = ["adamw-8bit", "adamw-4bit"]


@pytest.mark.parametrize(("name", "apart"), [("adamw-8bit", 0.02), ("adamw-4bit", 0.05)])
def test_it_follows_adamw(name: str, apart: float):
    model, twin = tiny_gpt2(), tiny_gpt2()
    losses = train(model, build(name, model, lr=3e-3), range(30))
    expected = train(twin, build("adamw", twin, lr=3e-3), range(30))
    assert losses[-1] == pytest.approx(expected[-1], abs=apart)


@pytest.fixture
def _no_compiler() -> Iterator[None]:
    torch.compiler.set_stance("force_eager")
    yield
    torch.compiler.set_stance("default")


@pytest.mark.usefixtures("_no_compiler")
def test_the_step_is_torchaos():
    """Which would compile its own: half a minute for one matrix."""
    import torchao.optim

    layer, twin = nn.Linear(64, 64, bias=False), nn.Linear(64, 64, bias=False)
    twin.load_state_dict(layer.state_dict())
    optimizer = build("adamw-8bit", layer, lr=1e-2)
    peer = torchao.optim.AdamW8bit(twin.parameters(), lr=1e-2, betas=(0.9, 0.95), weight_decay=0.1)
    for step in range(3):
        gradient = torch.randn(64, 64, generator=torch.Generator().manual_seed(step))
        layer.weight.grad, twin.weight.grad = gradient, gradient.clone()
        optimizer.step()
        peer.step()
    assert torch.equal(layer.weight, twin.weight)


def test_without_torchao_the_way_out_is_told(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "torchao", None)  # as Python itself marks what cannot be imported
    with pytest.raises(MissingPackageError, match=r"adamw-8bit needs torchao, .* 'adapm-bench\[low-bit\]'"):
        build("adamw-8bit", tiny_gpt2(), lr=1e-3)
    (row,) = footprint("gpt2-tiny", NAMES[:1]).optimizers
    assert row.state_bytes is None
    assert row.unknown_because is not None and "pip install" in row.unknown_because
