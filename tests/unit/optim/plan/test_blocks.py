"""The records of the block plan."""

import pytest

from optim.plan.blocks import BlockKind, FirstMoment
from tests.factories.blocks import matrix_block


@pytest.mark.parametrize(
    ("kind", "shape", "decays"),
    [
        (BlockKind.MLP, (8, 12), True),
        (BlockKind.VECTOR, (8,), False),
        (BlockKind.VECTOR, (4, 8), False),
        (BlockKind.POSITION_BIAS, (32, 4), False),
    ],
)
def test_vectors_and_biases_never_decay(kind, shape, decays):
    assert matrix_block(shape, kind=kind, first_moment=FirstMoment.FULL).decays is decays
