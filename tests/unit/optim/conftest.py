"""Shared by the optimizers' tests."""

from collections.abc import Iterator
from contextlib import nullcontext

import pytest

from optim.adapm import devices


@pytest.fixture(scope="module", params=["cpu", "accelerator"])
def branch(request: pytest.FixtureRequest) -> Iterator[str]:
    """The ways that optimizers take on a CPU, and then those that they take on an accelerator, on the CPU."""
    with devices.simulate_accelerator() if request.param == "accelerator" else nullcontext():
        yield request.param
