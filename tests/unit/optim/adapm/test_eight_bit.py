"""State in 8 bits: held against its slow twin, by itself and in whole trainings."""

import math
from copy import deepcopy
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from optim.adapm import AdaPM, AdaPMMini
from optim.adapm.eight_bit import EightBit
from optim.plan.blocks import EIGHT_BIT, BlockKind, BlockPlan, FirstMoment, SecondMoment
from optim.plan.placement import plan_blocks
from optim.state import state_bytes
from tests.factories.architectures import mixtral
from tests.factories.blocks import matrix_block
from tests.twins import eight_bit as twin
from tests.twins.adapm import LiteralMatrix, exact
from worker.checks.tiny_models import tiny_gpt2, tiny_llama, train

BOTH = [False, True]
LR = 3e-3


def stored(values: Tensor, *, squares: bool) -> EightBit:
    """These numbers, written."""
    groups = math.ceil(values[0].numel() / twin.NEIGHBOURS)
    codes = torch.zeros_like(values, dtype=torch.uint8 if squares else torch.int8)
    state = EightBit(codes, torch.zeros((len(values), groups)))
    state.write(values)
    return state


def drawn(seed: int, shape: tuple[int, ...], *, squares: bool, decades: float, dtype: torch.dtype) -> Tensor:
    """Numbers of many sizes, some of them zero."""
    random = torch.Generator().manual_seed(seed)
    sizes = 10.0 ** (decades * torch.rand(shape, generator=random, dtype=torch.float64) - decades / 2)
    values = torch.randn(shape, generator=random, dtype=torch.float64) * sizes
    values = values * (torch.rand(shape, generator=random) < 0.9)
    return (values.square() if squares else values).to(dtype)


@pytest.mark.parametrize("squares", BOTH)
@settings(max_examples=40)
@given(
    rows=st.integers(1, 4), columns=st.integers(1, 300), decades=st.sampled_from([0.0, 4.0, 20.0]), seed=st.integers(0)
)
def test_what_is_read_is_what_the_twin_reads(squares, rows, columns, decades, seed):
    """In float64, so that a code is another one only where a root lies within 1e-15 of the edge of two."""
    values = drawn(seed % 2**31, (rows, columns), squares=squares, decades=decades, dtype=torch.float64)
    numbers = stored(values, squares=squares).read(torch.float64)
    torch.testing.assert_close(numbers, twin.rounded(values, squares=squares), rtol=1e-12, atol=0.0)


@pytest.mark.parametrize("squares", BOTH)
@settings(max_examples=40)
@given(columns=st.integers(1, 300), decades=st.sampled_from([0.0, 4.0, 30.0]), seed=st.integers(0))
def test_to_write_what_was_read_changes_nothing(squares, columns, decades, seed):
    values = drawn(seed % 2**31, (3, columns), squares=squares, decades=decades, dtype=torch.float32)
    state = stored(values, squares=squares)
    second_state = stored(state.read(torch.float32), squares=squares)
    assert torch.equal(second_state.codes, state.codes)
    assert torch.equal(second_state.scales, state.scales)
    assert torch.equal(state.round_trip(values), state.read(torch.float32))


@pytest.mark.parametrize("squares", BOTH)
def test_the_largest_is_exact_and_what_is_a_thousandth_of_it_known_to_a_quarter(squares):
    values = torch.logspace(-3, 0, 128)[None]
    numbers = stored(values, squares=squares).read(torch.float32)
    assert numbers[0, -1] == 1.0
    assert float((numbers / values - 1).abs().max()) < 0.25


def test_a_second_moment_above_zero_stays_above_zero():
    values = torch.tensor([[0.0, 1e-38, 1e-20, 1.0]])
    assert (stored(values, squares=True).read(torch.float32) > 0).tolist() == [[False, True, True, True]]


def test_a_momentum_that_only_decays_keeps_its_codes():
    """The scale carries what all have in common, so that nothing stands still for being small."""
    values = drawn(0, (2, 256), squares=False, decades=2.0, dtype=torch.float32)
    state = stored(values, squares=False)
    decayed = stored(state.read(torch.float32) * 0.9, squares=False)
    assert torch.equal(decayed.codes, state.codes)
    torch.testing.assert_close(decayed.scales, state.scales * 0.9)


@pytest.mark.parametrize("squares", BOTH)
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_number_that_is_not_finite_shows_in_its_neighbours_and_nowhere_else(squares, bad):
    values = torch.ones(2, 200)
    values[0, 150] = bad
    numbers = stored(values, squares=squares).read(torch.float32)
    assert not numbers[0, 128:].isfinite().any()
    assert numbers[0, :128].eq(1).all()
    assert numbers[1].eq(1).all()


def test_rows_of_it_are_views():
    values = drawn(0, (4, 3, 5, 30), squares=False, decades=2.0, dtype=torch.float32)
    state = stored(values, squares=False)
    assert state.scales.shape == (4, math.ceil(450 / 128))
    state[1:3].write(values[:2])
    assert torch.equal(state[1:3].read(torch.float32), state.round_trip(values.flatten(1))[:2].view(2, 3, 5, 30))


MOMENTS = [
    (FirstMoment.LOW_RANK, SecondMoment.ELEMENT),
    (FirstMoment.FULL, SecondMoment.ELEMENT),
    (FirstMoment.NONE, SecondMoment.ELEMENT),
    (FirstMoment.LOW_RANK, SecondMoment.NEURON),
]


@pytest.mark.parametrize(("first", "second"), MOMENTS)
def test_twenty_steps_are_those_of_algorithm_1_with_rounded_state(first, second):
    """In float64: to 1e-9, unless a root lies within rounding of the edge of two codes."""
    rank = 4 if first is FirstMoment.LOW_RANK else 0
    block = matrix_block((8, 140), EIGHT_BIT, first_moment=first, second_moment=second, rank=rank)
    random = torch.Generator().manual_seed(0)
    start, *stream = (0.01 * torch.randn(8, 140, generator=random, dtype=torch.float64) for _ in range(21))
    rows = [torch.zeros(8, 140, dtype=torch.bool).index_fill_(0, torch.tensor(row), True) for row in range(8)]
    literal = LiteralMatrix(
        W=start.clone(),
        lr=LR * (0.75 if first is FirstMoment.NONE else 1.0),
        rank=max(1, rank),
        argmin=exact(rank) if rank else None,
        full_momentum=first is FirstMoment.FULL,
        groups=rows if second is SecondMoment.NEURON else None,
        keep=lambda state, squares: twin.rounded(state, squares=squares),
    )
    weight = nn.Parameter(start.clone())
    optimizer = AdaPM([("w", weight)], LR, plan=BlockPlan((block,)), solver="svd")
    for gradient in stream:
        weight.grad = gradient
        optimizer.step()
        literal.step(gradient)
    tensors = optimizer.state[weight]
    assert sum(value.nbytes for key, value in tensors.items() if key != "step") == block.state_bytes
    if second is SecondMoment.ELEMENT:  # one v a row is kept in float32, which float64 is not
        torch.testing.assert_close(weight.detach(), literal.W, rtol=0.0, atol=1e-9)
    else:
        torch.testing.assert_close(weight.detach(), literal.W, rtol=0.0, atol=1e-5)


def test_vectors_and_shared_second_moments_stay_in_float32():
    plan = plan_blocks(tiny_gpt2(), state_dtype=EIGHT_BIT)
    vectors = [block for block in plan if block.kind is BlockKind.VECTOR]
    assert vectors
    assert all(set(block.state_dtypes.values()) == {torch.float32} for block in vectors)
    mini = AdaPMMini.for_model(tiny_gpt2(), LR, state_dtype=EIGHT_BIT).plan
    query = next(block for block in mini if block.kind is BlockKind.QUERY)
    assert query.state_dtypes == {
        "momentum_left": torch.int8,
        "momentum_right": torch.int8,
        "exp_avg_sq": torch.float32,
        "momentum_left_scale": torch.float32,
        "momentum_right_scale": torch.float32,
    }


@pytest.mark.parametrize(
    ("cls", "make"),
    [
        (AdaPM, tiny_gpt2),
        (AdaPMMini, tiny_llama),
        (AdaPM, mixtral),
        (AdaPMMini, partial(tiny_gpt2, dtype=torch.bfloat16)),
    ],
)
def test_a_training_follows_that_with_exact_state(cls, make):
    torch.manual_seed(0)
    exact_model = make()
    torch.manual_seed(0)
    coded_model = make()
    losses = train(exact_model, cls.for_model(exact_model, LR), range(12))
    optimizer = cls.for_model(coded_model, LR, state_dtype=EIGHT_BIT)
    close = train(coded_model, optimizer, range(12))
    assert losses[-1] < losses[0] - 0.1
    assert close[-1] == pytest.approx(losses[-1], abs=0.02)
    assert close != losses
    counted = state_bytes(optimizer)
    assert counted.total_bytes - counted.counter_bytes == optimizer.plan.state_bytes


def test_single_blocks_take_the_same_steps_as_groups_of_them(monkeypatch):
    """Each step begins with the same weights and state: a number on the edge of two codes falls to either side, as the
    processor rounds, and the next step tells which."""
    plain_model, model = tiny_gpt2(), tiny_gpt2()
    plain = AdaPM.for_model(plain_model, LR, state_dtype=EIGHT_BIT)
    optimizer = AdaPM.for_model(model, LR, state_dtype=EIGHT_BIT)
    for step in range(3):
        train(plain_model, plain, range(step, step + 1))
        with monkeypatch.context() as small:
            small.setattr("optim.adapm.devices._CPU_CHUNK_ELEMENTS", 1)
            small.setattr("optim.adapm.groups.ALWAYS_ELEMENTS", 1)
            train(model, optimizer, range(step, step + 1))
        for weight, other in zip(model.parameters(), plain_model.parameters(), strict=True):
            torch.testing.assert_close(weight, other, rtol=0.0, atol=1e-5)
        codes = [codes_of(stepper) for stepper in (optimizer, plain)]
        assert codes[0].keys() == codes[1].keys() != set()
        for name, code in codes[0].items():
            apart = (code.int() - codes[1][name].int()).abs()
            assert apart.max() <= 1, "the next code at most"
            assert (apart > 0).float().mean() < 0.01
        model.load_state_dict(plain_model.state_dict())
        optimizer.load_state_dict(deepcopy(plain.state_dict()))  # torch would share the tensors


def codes_of(optimizer: torch.optim.Optimizer) -> dict[tuple[int, str], Tensor]:
    """Return the codes by index of the parameter and name of the state."""
    return {
        (index, name): value
        for index, state in optimizer.state_dict()["state"].items()
        for name, value in state.items()
        if isinstance(value, Tensor) and value.dtype in (torch.int8, torch.uint8)
    }


@pytest.mark.parametrize("wrong", [torch.int32, torch.uint8, torch.float8_e4m3fn, "int8"])
def test_a_type_that_is_none_for_state_is_named(wrong):
    with pytest.raises(ValueError, match=r"Invalid state_dtype: .*; it is one of None, .*torch\.int8"):
        AdaPM.for_model(tiny_gpt2(), LR, state_dtype=wrong)
