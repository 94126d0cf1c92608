"""Every optimizer of the catalog keeps every promise."""

import pytest

from optim.catalog import names
from worker.optimizer_contract import PROMISES, USUAL_RATE, Promise, Subject

RATES = {"adafactor": 0.1, "sm3": 0.05, "muon": 0.01, "sgd": 0.3, "nesterov": 0.1, "asgd": 0.1}
"""Rates at which 40 steps teach the tiny models something, where that is not the usual one."""

COASTING = {"adafactor", "asgd", "schedule-free-adamw"}
"""Those that move on at rate 0: Adafactor's momentum is of steps, rates included; the others' averages catch up."""


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
@pytest.mark.parametrize("name", names())
def test_an_optimizer_keeps_its_promise(name: str, promise: Promise):
    promise(Subject(name=name, lr=RATES.get(name, USUAL_RATE), coasts=name in COASTING))
