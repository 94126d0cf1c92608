"""Every optimizer of the catalog keeps every promise; common mistakes are found by `optimizers NAME --check`, and none
in a right one."""

from collections.abc import Iterable

import pytest

from api.cli.offline.optimizers import check_promises
from optim.catalog import CATALOG, names
from tests.fakes.flawed_optimizers import FLAWS, MaskedAdam, NeuronAdam, entry_of
from worker.checks.optimizer_contract import promises_of
from worker.checks.subject import USUAL_RATE, Promise, Subject

RATES = {"adafactor": 0.1, "sm3": 0.05, "muon": 0.01, "normuon": 0.01, "sgd": 0.3, "nesterov": 0.1, "asgd": 0.1}
"""Rates at which 40 steps teach the tiny models something, where that is not the usual one."""

COASTING = {"adafactor", "asgd", "schedule-free-adamw"}
"""The optimizers that move on at rate 0: Adafactor's momentum is of steps, rates included; the others' averages catch
up."""


def subject_of(name: str) -> Subject:
    return Subject(name=name, lr=RATES.get(name, USUAL_RATE), coasts=name in COASTING)


def promises(optimizer_names: Iterable[str]) -> list[object]:
    """Every promise of each of them."""
    return [
        pytest.param(name, promise, id=f"{name}-{promise.__name__}")
        for name in optimizer_names
        for promise in promises_of(subject_of(name))
    ]


@pytest.mark.parametrize(("name", "promise"), promises(names()))
def test_an_optimizer_keeps_its_promise(name: str, promise: Promise):
    promise(subject_of(name))


@pytest.fixture
def subject(monkeypatch: pytest.MonkeyPatch, kind: type[NeuronAdam]) -> Subject:
    entry = entry_of(kind)
    monkeypatch.setattr("optim.catalog.lookup.CATALOG", (*CATALOG, entry))
    return Subject(name=entry.name)


@pytest.mark.parametrize(("kind", "broken"), FLAWS.items(), ids=[kind.__name__ for kind in FLAWS])
def test_a_flaw_is_found(subject: Subject, broken: str) -> None:
    (promise,) = [promise for promise in promises_of(subject) if promise.__name__ == broken]
    (outcome,) = check_promises(subject, (promise,))
    assert not outcome.kept and outcome.found


@pytest.mark.parametrize("kind", [NeuronAdam, MaskedAdam])
def test_nothing_is_found_in_one_that_is_right(subject: Subject) -> None:
    assert [outcome for outcome in check_promises(subject, promises_of(subject)) if not outcome.kept] == []
