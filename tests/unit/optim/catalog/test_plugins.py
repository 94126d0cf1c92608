"""Own optimizers come from installed packages, and only those that the operator allows."""

from pathlib import Path

import pytest

from optim import catalog
from optim.builder import build
from optim.catalog.lookup import VARIABLE
from optim.errors import OwnOptimizerError
from worker.checks.tiny_models import tiny_gpt2, train

PACKAGE = Path(__file__).parents[3] / "fakes" / "own_package"


@pytest.fixture(autouse=True)
def _installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(str(PACKAGE))
    monkeypatch.syspath_prepend(str(tmp_path))


def test_none_is_offered_unless_it_is_allowed():
    assert catalog.names() == tuple(entry.name for entry in catalog.CATALOG)


def test_an_allowed_one_is_built_like_any_other(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(VARIABLE, " signum ,")
    assert catalog.names()[-1] == "signum"
    model = tiny_gpt2()
    losses = train(model, build("signum", model, lr=3e-3, options={"beta": 0.8}), range(20))
    assert losses[-1] < losses[0] - 0.5


@pytest.mark.parametrize(
    ("allowed", "sentence"),
    [
        ("adamw", "names 'adamw', which this project ships"),
        ("signun", "names 'signun', which no installed package offers under 'adapm_bench.optimizers' (offered: "),
        ("signum,misnamed", "optimizer 'misnamed': its entry is named 'signum'"),
        ("nothing", "entry signum_entry:ANOTHER cannot be imported: AttributeError: module 'signum_entry' has no"),
        ("absent", "entry no_such_package.entry:ENTRY cannot be imported: ModuleNotFoundError: No module named"),
        ("misspelt", "entry misspelt_entry:ENTRY cannot be imported: SyntaxError: "),
        ("leaving", "entry leaving_entry:ENTRY cannot be imported: SystemExit: 3; mend or reinstall its package, or"),
        ("number", "whose entry math:pi is of type float; it must be an optim.catalog.OptimizerEntry"),
    ],
)
def test_what_cannot_be_used_is_said_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, allowed: str, sentence: str
):
    (tmp_path / "misspelt_entry.py").write_text("def entry(:\n")
    (tmp_path / "leaving_entry.py").write_text("raise SystemExit(3)\n")
    monkeypatch.setenv(VARIABLE, allowed)
    with pytest.raises(OwnOptimizerError) as caught:
        catalog.names()
    assert sentence in str(caught.value)
