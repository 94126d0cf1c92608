"""Every optimizer of the catalog keeps every promise."""

from collections.abc import Iterable

import pytest

from optim.catalog import names
from worker.checks.optimizer_contract import promises_of
from worker.checks.subject import USUAL_RATE, Promise, Subject

RATES = {"adafactor": 0.1, "sm3": 0.05, "muon": 0.01, "normuon": 0.01, "sgd": 0.3, "nesterov": 0.1, "asgd": 0.1}
"""Rates at which 40 steps teach the tiny models something, where that is not the usual one."""

COASTING = {"adafactor", "asgd", "schedule-free-adamw"}
"""The optimizers that move on at rate 0: Adafactor's momentum is of steps, rates included; the others' averages catch
up."""


def subject(name: str) -> Subject:
    return Subject(name=name, lr=RATES.get(name, USUAL_RATE), coasts=name in COASTING)


def promises(optimizer_names: Iterable[str]) -> list[object]:
    """Every promise of each of them."""
    return [
        pytest.param(name, promise, id=f"{name}-{promise.__name__}")
        for name in optimizer_names
        for promise in promises_of(subject(name))
    ]


@pytest.mark.parametrize(("name", "promise"), promises(names()))
def test_an_optimizer_keeps_its_promise(name: str, promise: Promise):
    promise(subject(name))
