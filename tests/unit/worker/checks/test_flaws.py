"""Common mistakes in an optimizer are found by `optimizers NAME --check`, and none in a right one."""

import pytest

from api.cli.offline.optimizers import check_promises
from optim.catalog import CATALOG
from tests.fakes.flawed_optimizers import FLAWS, MaskedAdam, NeuronAdam, entry_of
from worker.checks.optimizer_contract import promises_of
from worker.checks.subject import Subject


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
