"""Tests that do not run for want of a program say so in the last line; in CI they are failures."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.tree import REPOSITORY


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("ci", "rc", "workers"), [("true", 1, ("-n", "1")), ("", 0, ())])
def test_without_chromium_the_browsers_tests_say_that_they_did_not_run(
    tmp_path: Path, ci: str, rc: int, workers: tuple[str, ...]
) -> None:
    """A PATH without any program, in a process of its own."""
    environment = {**os.environ, "PATH": str(tmp_path), "CI": ci}
    environment.pop("ADAPM_BENCH_CHROMIUM", None)
    arguments = ["-m", "pytest", "-p", "no:cacheprovider", *workers, "tests/browser/test_accessible.py"]
    done = subprocess.run([sys.executable, *arguments], cwd=REPOSITORY, env=environment, capture_output=True, text=True)
    assert done.returncode == rc, done.stdout + done.stderr
    last = done.stdout.rstrip().split("\n")[-1]
    assert re.fullmatch(r"\d+ tests did not run: install Chromium .*", last), done.stdout
