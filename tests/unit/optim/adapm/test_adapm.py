"""AdaPM against its literal twin, and what it does with good and bad options, states and gradients."""

import copy
import io
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from optim.adapm import AdaPM, AdaPMMini
from optim.adapm.low_rank import gaussian_sketch, spare_sketch
from optim.plan.blocks import Block, BlockKind, BlockPlan, FirstMoment, SecondMoment
from optim.plan.placement import plan_blocks
from tests.factories.blocks import matrix_block
from tests.twins.adapm import LiteralMatrix, exact, head_groups, on_transposed, subspace_iteration
from worker.checks.tiny_models import loss_of, tiny_gpt2, tiny_llama, train

SHAPES = [(24, 40), (40, 24)]
LR = 1e-2


def gradients(shape: tuple[int, int], dtype: torch.dtype, steps: int = 50) -> list[Tensor]:
    """Gradients like a Transformer's: a few slowly turning directions over noise, of magnitude 1e-3."""
    generator = torch.Generator().manual_seed(3)
    left = torch.randn(shape[0], 3, generator=generator, dtype=torch.float64)
    right = torch.randn(3, shape[1], generator=generator, dtype=torch.float64)
    stream = []
    for _ in range(steps):
        left += 0.1 * torch.randn(left.shape, generator=generator, dtype=torch.float64)
        noise = torch.randn(shape, generator=generator, dtype=torch.float64)
        stream.append((1e-3 * (left @ torch.diag(torch.tensor([3.0, 2.0, 1.0]).double()) @ right + noise)).to(dtype))
    return stream


def fast(block: Block, start: Tensor, stream: list[Tensor], **options: Any) -> Tensor:
    """The weights that AdaPM reaches."""
    weight = nn.Parameter(start.clone())
    optimizer = AdaPM([("w", weight)], LR, plan=BlockPlan((block,)), **options)
    for gradient in stream:
        weight.grad = gradient
        optimizer.step()
    return weight.detach()


def literal(start: Tensor, stream: list[Tensor], **fields: Any) -> Tensor:
    """The weights that the paper's own lines reach."""
    twin = LiteralMatrix(**{"W": start.clone(), "lr": LR, "argmin": None, **fields})
    for gradient in stream:
        twin.step(gradient)
    return twin.W


def relative_error(weights: Tensor, expected: Tensor, start: Tensor) -> float:
    """Return the error relative to the path gone, not to the weights: the stricter one."""
    return float(torch.linalg.norm(weights - expected) / torch.linalg.norm(expected - start))


def start_of(shape: tuple[int, int], dtype: torch.dtype) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(dtype) * 0.02


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-10)])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("bias_correction", [True, False])
def test_fifty_steps_of_the_svd_solver_are_algorithm_1(shape, dtype, tolerance, bias_correction):
    start, stream = start_of(shape, dtype), gradients(shape, dtype)
    block = matrix_block(shape, dtype)
    weights = fast(block, start, stream, solver="svd", bias_correction=bias_correction)
    expected = literal(start, stream, argmin=exact(block.rank), rank=block.rank, bias_correction=bias_correction)
    assert relative_error(weights, expected, start) < tolerance


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-10)])
@pytest.mark.parametrize(("shape", "output_axis"), [(SHAPES[0], 0), (SHAPES[1], 1)])
@pytest.mark.parametrize(("iterations", "interval"), [(1, 20), (3, 0)])
def test_fifty_steps_of_the_subspace_solver_are_algorithm_1(shape, dtype, tolerance, iterations, interval, output_axis):
    start, stream = start_of(shape, dtype), gradients(shape, dtype)
    block = matrix_block(shape, dtype, output_axis=output_axis)
    like = torch.empty(block.rank, shape[1 - output_axis], dtype=dtype)
    weights = fast(
        block, start, stream, solver="subspace", inner_iterations=iterations, refresh_interval=interval, seed=7
    )
    spare = spare_sketch(7, *like.shape, dtype, like.device)
    argmin = subspace_iteration(iterations, interval, lambda step: gaussian_sketch(7, step, "w", like), spare=spare)
    expected = literal(start, stream, argmin=on_transposed(argmin) if output_axis else argmin, rank=block.rank)
    assert relative_error(weights, expected, start) < tolerance


def test_a_layer_learns_alike_in_both_layouts():
    """Outputs × inputs (`nn.Linear`) or inputs × outputs (`Conv1D`): the search starts from the input side in both."""
    start, stream = start_of((24, 40), torch.float64), gradients((24, 40), torch.float64)
    linear = fast(matrix_block((24, 40), torch.float64), start, stream)
    turned = matrix_block((40, 24), torch.float64, output_axis=1)
    conv1d = fast(turned, start.T.contiguous(), [gradient.T.contiguous() for gradient in stream])
    assert relative_error(conv1d.T, linear, start) < 1e-10


@pytest.mark.parametrize("output_axis", [0, 1])
@pytest.mark.parametrize("second_moment", [SecondMoment.NEURON, SecondMoment.HEAD, SecondMoment.ROW])
@pytest.mark.parametrize("first_moment", list(FirstMoment))
def test_fifty_steps_of_adapm_mini_are_algorithm_1_with_shared_second_moments(output_axis, second_moment, first_moment):
    head_size = 8 if second_moment is SecondMoment.HEAD else 1
    shape, dtype = (24, 40), torch.float32
    start, stream = start_of(shape, dtype), gradients(shape, dtype)
    block = matrix_block(
        shape,
        dtype,
        first_moment=first_moment,
        second_moment=second_moment,
        head_size=head_size,
        output_axis=output_axis,
    )
    weights = fast(block, start, stream, solver="svd")
    low_rank = first_moment is FirstMoment.LOW_RANK
    expected = literal(
        start,
        stream,
        argmin=exact(block.rank) if low_rank else None,
        rank=block.rank,
        full_momentum=first_moment is FirstMoment.FULL,
        groups=head_groups(shape, output_axis, head_size),
        **({"lr": LR * 0.75} if first_moment is FirstMoment.NONE else {}),
    )
    assert relative_error(weights, expected, start) < 1e-5


def test_full_moments_everywhere_and_debiased_is_adamw():
    model, twin = tiny_gpt2(), tiny_gpt2()
    plan = plan_blocks(model, first_moments=dict.fromkeys(BlockKind, FirstMoment.FULL))
    optimizer = AdaPM(model.named_parameters(), LR, plan=plan, debias_moments=True, weight_decay=0.1)
    groups: list[dict[str, Any]] = [
        {"params": [value for value in twin.parameters() if value.ndim > 1], "weight_decay": 0.1},
        {"params": [value for value in twin.parameters() if value.ndim <= 1], "weight_decay": 0.0},
    ]
    adamw = torch.optim.AdamW(groups, lr=LR, betas=(0.9, 0.95), eps=1e-8)
    losses, expected = train(model, optimizer, range(20)), train(twin, adamw, range(20))
    assert losses == pytest.approx(expected, rel=1e-4)
    assert losses[-1] < losses[0] - 1.0


@pytest.mark.parametrize("first_moment", list(FirstMoment))
@pytest.mark.parametrize(("second_moment", "output_axis"), [(SecondMoment.ELEMENT, 0), (SecondMoment.NEURON, 1)])
def test_a_block_of_many_row_chunks_is_updated_like_a_small_one(monkeypatch, first_moment, second_moment, output_axis):
    shape = (24, 40)
    start, stream = start_of(shape, torch.float32), gradients(shape, torch.float32, steps=5)
    block = matrix_block(
        shape, torch.float32, first_moment=first_moment, second_moment=second_moment, output_axis=output_axis
    )
    whole = fast(block, start, stream)
    monkeypatch.setattr("optim.adapm.devices._CPU_CHUNK_ELEMENTS", 200)  # five rows a chunk, four in the last
    assert relative_error(fast(block, start, stream), whole, start) < 1e-5


def test_the_clip_bounds_every_element_of_the_first_update():
    start, stream = torch.zeros(24, 40), gradients((24, 40), torch.float32, steps=1)
    none = matrix_block((24, 40), torch.float32, first_moment=FirstMoment.NONE)
    clipped = fast(none, start, stream, clip=0.5, momentum_free_lr_scale=1.0)
    free = fast(none, start, stream, clip=None, momentum_free_lr_scale=1.0)
    assert clipped.abs().max().item() == pytest.approx(0.5 * LR)
    # Without bias correction of v, the first quotient is g / sqrt(0.05 g²) = ± 4.47.
    assert free.abs().median().item() == pytest.approx(LR * 0.05**-0.5, rel=1e-3)


def test_blocks_without_momentum_take_three_quarters_of_the_rate_after_a_scheduler_too():
    weight = nn.Parameter(torch.zeros(8, 8))
    block = matrix_block((8, 8), torch.float32, first_moment=FirstMoment.NONE)
    optimizer = AdaPM([("w", weight)], LR, plan=BlockPlan((block,)))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.1**step)
    for expected in (0.75 * LR, 0.75 * 0.1 * LR):
        original = weight.detach().clone()
        weight.grad = torch.ones(8, 8)
        optimizer.step()
        # 1 / sqrt(v) > 1 at both steps, so the clip makes the update 1; the decay of so small a weight is below 1e-9.
        assert (original - weight).mean().item() == pytest.approx(expected, rel=1e-2)
        schedule.step()


@pytest.mark.parametrize("cls", [AdaPM, AdaPMMini])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"state_dtype": torch.bfloat16},
        {"state_dtype": torch.int8},
        {"solver": "svd"},
        {"bf16_stochastic_round": True},
        {"master_weights": True},
    ],
)
def test_it_resumes_bit_for_bit_across_a_refresh(cls, options):
    def build(model: nn.Module) -> AdaPM:
        instance: AdaPM = cls.for_model(model, LR, refresh_interval=3, seed=5, **options)
        return instance

    whole = tiny_gpt2(dtype=torch.bfloat16)
    train(whole, build(whole), range(8))
    first = tiny_gpt2(dtype=torch.bfloat16)
    optimizer = build(first)
    train(first, optimizer, range(3))
    file = io.BytesIO()
    torch.save([first.state_dict(), optimizer.state_dict()], file)
    file.seek(0)
    weights, state = torch.load(file, weights_only=True)
    second = tiny_gpt2(seed=9, dtype=torch.bfloat16)
    second.load_state_dict(weights)
    resumed = build(second)
    resumed.load_state_dict(state)
    train(second, resumed, range(3, 8))
    for weight, other in zip(whole.parameters(), second.parameters(), strict=True):
        assert torch.equal(weight, other)


def test_state_is_kept_under_torchs_names():
    model = tiny_gpt2()
    optimizer = AdaPM.for_model(model, LR)
    train(model, optimizer, range(1))

    def keys(name: str) -> list[str]:
        return list(optimizer.state[model.get_parameter(f"transformer.h.0.attn.{name}")])

    assert keys("c_attn.weight") == [
        "step",
        "query.momentum_left",
        "query.momentum_right",
        "query.exp_avg_sq",
        "key.momentum_left",
        "key.momentum_right",
        "key.exp_avg_sq",
        "value.exp_avg",
        "value.exp_avg_sq",
    ]
    assert keys("c_proj.weight") == ["step", "exp_avg_sq"]
    assert keys("c_proj.bias") == ["step", "exp_avg", "exp_avg_sq"]


def test_the_state_of_a_model_with_a_parameter_without_elements_loads():
    named = [("norm.weight", nn.Parameter(torch.ones(4))), ("empty.bias", nn.Parameter(torch.ones(0)))]
    optimizer, loaded = AdaPM(named, LR), AdaPM(named, LR)
    for _, value in named:
        value.grad = torch.ones_like(value)
    optimizer.step()
    loaded.load_state_dict(optimizer.state_dict())
    torch.testing.assert_close(loaded.state_dict()["state"], optimizer.state_dict()["state"])


def test_state_of_another_rank_is_refused_and_nothing_changes():
    model = tiny_gpt2()
    donor = AdaPM.for_model(model, LR, rank_ratio=0.5)
    train(model, donor, range(1))
    optimizer = AdaPM.for_model(model, LR)
    train(model, optimizer, range(1))
    before = copy.deepcopy(optimizer.state_dict())
    with pytest.raises(ValueError, match=r"c_attn\.weight is \{'query\.momentum_left': \(32, 16\).*rank_ratio"):
        optimizer.load_state_dict(donor.state_dict())
    after = optimizer.state_dict()
    assert after["param_groups"] == before["param_groups"]
    torch.testing.assert_close(after["state"], before["state"], rtol=0.0, atol=0.0)


def test_state_of_a_model_of_another_size_is_refused():
    model = tiny_gpt2()
    state = AdaPM.for_model(model, LR).state_dict()
    state["param_groups"][0]["params"] = [0, 1]
    with pytest.raises(ValueError, match=r"groups of \[2\] parameters, this optimizer of \[28\]"):
        AdaPM.for_model(model, LR).load_state_dict(state)


def test_a_sparse_gradient_is_refused_before_any_weight_moves():
    model = tiny_gpt2()
    optimizer = AdaPM.for_model(model, LR)
    loss_of(model, 0).backward()
    originals = [value.detach().clone() for value in model.parameters()]
    norm = model.get_parameter("transformer.ln_f.weight")
    norm.grad = torch.ones_like(norm).to_sparse()
    with pytest.raises(RuntimeError, match=r"AdaPM does not support sparse gradients, and transformer\.ln_f\.weight"):
        optimizer.step()
    assert all(torch.equal(weight, other) for weight, other in zip(model.parameters(), originals, strict=True))


def test_a_parameter_outside_the_plan_is_refused():
    with pytest.raises(ValueError, match="w is not in the block plan"):
        AdaPM([("w", nn.Parameter(torch.zeros(2, 2)))], LR, plan=BlockPlan(()))


@pytest.mark.parametrize("name", ["transformer.wte.weight", "transformer.h.0.mlp.c_fc.bias"])
@pytest.mark.parametrize("factor", [0.5, 2])
def test_a_parameter_that_was_resized_is_refused_before_any_weight_moves(name, factor):
    """A kernel would read beyond the state of one that has grown."""
    model = tiny_gpt2()
    optimizer = AdaPM.for_model(model, LR)
    train(model, optimizer, range(1))
    resized = model.get_parameter(name)
    resized.data = torch.zeros(int(len(resized) * factor), *resized.shape[1:])
    resized.grad = torch.ones_like(resized)
    original = copy.deepcopy(model.state_dict())
    with pytest.raises(ValueError, match=rf"{name} is \(\d+.* another size than .*; build it after the model"):
        optimizer.step()
    torch.testing.assert_close(model.state_dict(), original, rtol=0.0, atol=0.0)


def test_two_parameters_of_one_name_are_refused_with_the_way_out():
    parameters = [*tiny_llama().named_parameters(), *tiny_llama().named_parameters()]
    with pytest.raises(ValueError, match=r"two parameters are called model\.embed_tokens\.weight.*nn\.ModuleDict"):
        AdaPM(parameters, LR)


def test_bfloat16_state_halves_the_bytes_and_follows_float32_state():
    full, half = tiny_gpt2(), tiny_gpt2()
    exact_state, rounded = AdaPM.for_model(full, 3e-3), AdaPM.for_model(half, 3e-3, state_dtype=torch.bfloat16)
    losses, close = train(full, exact_state, range(30)), train(half, rounded, range(30))
    assert rounded.plan.state_bytes * 2 == exact_state.plan.state_bytes
    assert close[-1] == pytest.approx(losses[-1], abs=0.1)


def test_the_state_of_another_optimizer_is_refused_and_changes_nothing():
    """AdamW's fresh state has no tensors to tell it by; its options do."""
    model = tiny_gpt2()
    optimizer = AdaPM.for_model(model, lr=1e-3)
    original = copy.deepcopy(optimizer.state_dict())
    adamw = torch.optim.AdamW(model.parameters())
    with pytest.raises(ValueError, match=r"of another optimizer: it lacks bf16_stochastic_round, .*solver"):
        optimizer.load_state_dict(adamw.state_dict())
    assert optimizer.state_dict() == original


def test_a_step_counts_as_a_change_of_every_weight_that_moves():
    """Else autograd would take new weights for those of the forward pass: torch's fused kernel forgets to."""
    model = tiny_gpt2()
    optimizer = AdaPM.for_model(model, LR)
    frozen_weight = next(iter(model.parameters()))
    for value in model.parameters():
        value.grad = None if value is frozen_weight else torch.ones_like(value)
    versions = {value: value._version for value in model.parameters()}
    optimizer.step()
    assert frozen_weight._version == versions.pop(frozen_weight)
    assert all(value._version > version for value, version in versions.items())


@pytest.mark.parametrize("cls", [AdaPM, AdaPMMini])
def test_a_second_moment_that_overflows_leaves_its_weights_where_they_are(cls):
    """As AdamW does: v is infinite from then on, and no gradient makes NaN of it."""
    named = [(f"layers.0.self_attn.{kind}_proj.weight", nn.Parameter(torch.randn(8, 8))) for kind in "qkvo"]
    optimizer = cls(named, lr=1e-3, heads=2, weight_decay=0.0)
    for size in (0.01, 1e20, 0.01, 0.01):
        originals = [value.detach().clone() for _, value in named]
        for _, value in named:
            value.grad = torch.full_like(value, size)
        optimizer.step()
    assert all(value.isfinite().all() for _, value in named)
    assert all(torch.equal(value, old) for (_, value), old in zip(named, originals, strict=True))
