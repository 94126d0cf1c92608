"""Somebody's optimizer through the command line: checked, planned for, trained, as if its package were installed."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from api.cli import main
from optim.catalog.lookup import VARIABLE
from tests.architecture.tree import REPOSITORY

PACKAGE = REPOSITORY / "tests" / "fakes" / "own_package"

SPEC = """\
workload:
  model: gpt2-tiny
  data: {sequence_length_tokens: 32}
  budget: {steps: 4, batch_sequences: 4}
  evaluation: {sequences: 4}
optimizer: {name: signum, lr: 0.001, options: {beta: 0.8}}
seed: 0
"""


Services = Callable[..., Result]


@pytest.fixture
def services(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Services:
    """`adapm-bench …` with the package on its path, in a folder of its own."""
    monkeypatch.syspath_prepend(str(PACKAGE))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ADAPM_BENCH_DATA_FOLDER", str(tmp_path))

    def call(*arguments: str, allowed: str = "signum,sloppy") -> Result:
        monkeypatch.setenv(VARIABLE, allowed)
        return CliRunner().invoke(main, list(arguments), catch_exceptions=False)

    return call


def test_one_that_keeps_every_promise(services: Services):
    checked = services("optimizers", "signum", "--check")
    assert checked.exit_code == 0, checked.stdout
    assert "29 of 29" in checked.stdout


def test_one_that_breaks_some_is_told_which(services: Services):
    checked = services("optimizers", "sloppy", "--check", "--json")
    assert checked.exit_code == 1
    broken = {finding["promise"]: finding["found"] for finding in json.loads(checked.stdout) if not finding["kept"]}
    assert {"Weight decay shrinks matrices, and leaves vectors alone."} < set(broken)
    detail = broken["A resumed run gives the bits of one that never stopped."]
    assert detail.endswith(", 0 loaded")


def test_it_trains_like_any_other(services: Services, tmp_path: Path):
    (tmp_path / "spec.yaml").write_text(SPEC)
    trained = services("run", "spec.yaml", "--json")
    assert trained.exit_code == 0, trained.stderr
    listed = services("optimizers", "signum", "--json")
    assert {option["name"]: option["default"] for option in json.loads(listed.stdout)["options"]}["beta"] == 0.9


def test_the_doctor_says_which_package_cannot_be_imported_and_why(services: Services):
    examined = services("doctor", "--json", allowed="absent")
    (check,) = json.loads(examined.stdout)
    assert (examined.exit_code, examined.stderr) == (1, "")
    assert check["found"].startswith(f"{VARIABLE} names 'absent'")
    assert "ModuleNotFoundError: No module named 'no_such_package'" in check["found"]
    assert check["way_out"]
