"""Somebody's optimizer through the command line: checked, planned for, trained, all in processes of their own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from optim.own import VARIABLE

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "tests" / "reference" / "own_package"

SPEC = """\
workload:
  model: gpt2-tiny
  data: {sequence_length_tokens: 32}
  budget: {steps: 4, batch_sequences: 4}
  evaluation: {sequences: 4}
optimizer: {name: signum, lr: 0.001, options: {beta: 0.8}}
seed: 0
"""


def bench(*arguments: str, allowed: str = "signum,sloppy", folder: Path) -> subprocess.CompletedProcess[str]:
    """`adapm-bench …` with the package on its path."""
    paths = os.pathsep.join([str(ROOT), str(PACKAGE)])
    environment = os.environ | {"PYTHONPATH": paths, VARIABLE: allowed, "ADAPM_BENCH_DATA_FOLDER": str(folder)}
    command = [sys.executable, "-m", "api.cli", *arguments]
    return subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)


def test_one_that_keeps_every_promise(tmp_path: Path):
    checked = bench("optimizer", "check", "signum", folder=tmp_path)
    assert checked.returncode == 0, checked.stdout
    assert "signum keeps 21 of 21 promises" in checked.stdout


def test_one_that_breaks_some_is_told_which(tmp_path: Path):
    checked = bench("optimizer", "check", "sloppy", "--json", folder=tmp_path)
    assert checked.returncode == 1
    broken = {finding["promise"]: finding["found"] for finding in json.loads(checked.stdout) if not finding["kept"]}
    assert {"Weight decay shrinks matrices, and leaves vectors alone."} < set(broken)
    found = broken["A resumed run gives the bits of one that never stopped."]
    assert found.endswith("bytes of state were saved, 0 loaded")


def test_it_trains_like_any_other(tmp_path: Path):
    (tmp_path / "spec.yaml").write_text(SPEC)
    trained = bench("run", "spec.yaml", "--json", folder=tmp_path)
    assert trained.returncode == 0, trained.stderr
    listed = bench("optimizers", "signum", "--json", folder=tmp_path)
    assert json.loads(listed.stdout)["options_schema"]["properties"]["beta"]["default"] == 0.9


@pytest.mark.parametrize(
    ("allowed", "name", "sentence"),
    [
        ("signum", "sloppy", "unknown optimizer 'sloppy'; known: "),
        ("signun", "signum", "names 'signun', which no installed package offers"),
    ],
)
def test_what_is_not_allowed_is_refused(tmp_path: Path, allowed: str, name: str, sentence: str):
    checked = bench("optimizer", "check", name, allowed=allowed, folder=tmp_path)
    assert (checked.returncode, checked.stdout) == (2, "")
    assert sentence in checked.stderr
