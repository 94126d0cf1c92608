"""One process, several that share a block, and the literal twin find the same factors, whatever the gradients' rank.

The processes' parts are solved side by side here: `tests/integration/optim/test_sharded.py` has real processes.
"""

from collections.abc import Iterator, Sequence
from typing import Any
from unittest.mock import patch

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from optim.adapm import low_rank, solvers
from optim.adapm.low_rank import Factors, Momentum, gaussian_sketch
from optim.adapm.sharded import Groups
from tests.twins.adapm import subspace_iteration

BETA1 = 0.9
INTERVAL = 4
STEPS = 6
sizes = st.integers(1, 20)


def gradients(
    seed: int, shape: tuple[int, int], ranks: Sequence[int], noise: float, dtype: torch.dtype
) -> list[Tensor]:
    """Return a gradient a step, of each rank; with noise they nearly depend on each other."""
    drawn = torch.Generator().manual_seed(seed)

    def draw(*size: int) -> Tensor:
        return torch.randn(size, generator=drawn, dtype=torch.float64)

    low = [draw(shape[0], rank) @ draw(rank, shape[1]) for rank in ranks]
    return [(matrix + noise * draw(*shape)).to(dtype) for matrix in low]


def sketch(step: int, rank: int, columns: int, dtype: torch.dtype) -> Tensor:
    return gaussian_sketch(0, step, "block", torch.empty(rank, columns, dtype=dtype))


def zeros(rows: int, columns: int, rank: int, dtype: torch.dtype) -> Factors:
    return Factors(torch.zeros(rows, rank, dtype=dtype), torch.zeros(rank, columns, dtype=dtype))


def is_fresh(step: int) -> bool:
    return step % INTERVAL == 1


def found_alone(stream: Sequence[Tensor], rank: int) -> Iterator[Factors]:
    rows, columns = stream[0].shape
    carried = zeros(rows, columns, rank, stream[0].dtype)
    for step, gradient in enumerate(stream, 1):
        drawn = sketch(step, rank, columns, gradient.dtype)
        how: dict[str, Any] = {"iterations": 1, "fresh": is_fresh(step)}
        (carried,) = solvers.subspace([Momentum(gradient, carried, BETA1)], **how, sketches=[drawn])
        yield carried


def found_literally(stream: Sequence[Tensor], rank: int) -> Iterator[Factors]:
    rows, columns = stream[0].shape
    argmin = subspace_iteration(1, INTERVAL, lambda step: sketch(step, rank, columns, stream[0].dtype).double())
    L, R = zeros(rows, columns, rank, torch.float64)
    for step, gradient in enumerate(stream, 1):
        L, R = argmin((1 - BETA1) * gradient.double() + BETA1 * L @ R, L, R, step)
        yield Factors(L, R)


def found_together(stream: Sequence[Tensor], rank: int, parts: int, axis: int) -> Iterator[Factors]:
    """Yield the factors of so many processes, among which outputs (axis 0) or inputs (1) are divided; some may have
    none."""
    rows, columns = stream[0].shape
    everybody: Any = ("all of them",)
    outputs, inputs = (everybody, ()) if axis == 0 else ((), everybody)
    whole = zeros(rows, columns, rank, stream[0].dtype)
    left, right = (list(torch.tensor_split(part, parts, dim=axis)) for part in whole)
    if axis == 0:
        right = [whole.right] * parts
    else:
        left = [whole.left] * parts
    for step, gradient in enumerate(stream, 1):
        drawn = torch.tensor_split(sketch(step, rank, columns, gradient.dtype), parts if axis == 1 else 1, dim=1)
        momenta = [
            Momentum(part, Factors(left[k], right[k]), BETA1, outputs=outputs, inputs=inputs)
            for k, part in enumerate(torch.tensor_split(gradient, parts, dim=axis))
        ]
        sketches = [drawn[k if axis == 1 else 0] for k in range(parts)]
        with patch.object(solvers, SUMS, sum_side_by_side), patch.object(low_rank, SUMS, sum_side_by_side):
            factors = solvers.subspace(momenta, iterations=1, fresh=is_fresh(step), sketches=sketches)
        left, right = [part.left for part in factors], [part.right for part in factors]
        yield Factors(torch.cat(left) if axis == 0 else left[0], right[0] if axis == 0 else torch.cat(right, dim=1))


SUMS = "sum_over_processes"


def sum_side_by_side(parts: Sequence[Tensor], among: Sequence[Groups]) -> list[Tensor]:
    """Return the sum for each of the processes, whose parts are all here: in one list, in the place of its own."""
    if not any(among):
        return [*parts]
    whole = torch.stack([*parts]).sum(dim=0)
    return [whole.clone() for _ in parts]


def require_agreement(stream: Sequence[Tensor], rank: int, parts: int, axis: int, tolerance: float) -> None:
    """Require the agreement of all three, to that share of the largest gradient."""
    ways = (found_alone(stream, rank), found_together(stream, rank, parts, axis), found_literally(stream, rank))
    size = max(float(gradient.abs().max()) for gradient in stream)
    for single, joint, literal in zip(*ways, strict=True):
        expected = literal.left @ literal.right
        for factors in (single, joint):
            momentum = (factors.left @ factors.right).double()
            torch.testing.assert_close(momentum, expected, rtol=0.0, atol=tolerance * size)
        assert torch.equal(single.left.any(dim=0), joint.left.any(dim=0))  # the same directions are left out


@settings(max_examples=80)
@given(
    shape=st.tuples(sizes, sizes),
    share=st.floats(0.05, 1.0),
    ranks=st.lists(st.integers(0, 3), min_size=STEPS, max_size=STEPS),
    noise=st.sampled_from([0.0, 0.0, 1e-12, 1e-9, 1e-7, 1e-3, 1.0]),
    parts=st.integers(2, 4),
    axis=st.integers(0, 1),
    seed=st.integers(0, 10**6),
)
def test_all_find_the_same_momentum(shape, share, ranks, noise, parts, axis, seed):
    """To 1e-6: a direction that is 1e-5 of another is known to 1e-11 only, and six steps follow each other."""
    stream = gradients(seed, shape, ranks, noise, torch.float64)
    require_agreement(stream, max(1, round(share * min(shape))), parts, axis, tolerance=1e-6)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize(
    ("ranks", "noise"),
    [
        ([1] * STEPS, 0.0),
        ([1] * STEPS, 1e-9),
        ([1, 1, 1, 20, 20, 20], 0.0),
        ([0, 0, 2, 0, 1, 20], 0.0),
        ([0] * STEPS, 0.0),
    ],
)
def test_gradients_of_few_directions_leave_no_more_than_rounding(dtype, tolerance, axis, ranks, noise):
    require_agreement(gradients(1, (20, 30), ranks, noise, dtype), 6, 3, axis, tolerance)
