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
    (promise,) = [each for each in promises_of(subject) if each.__name__ == broken]
    (found,) = check_promises(subject, (promise,))
    assert not found.kept and found.found


@pytest.mark.parametrize("kind", [NeuronAdam, MaskedAdam])
def test_nothing_is_found_in_one_that_is_right(subject: Subject) -> None:
    assert [each for each in check_promises(subject, promises_of(subject)) if not each.kept] == []
