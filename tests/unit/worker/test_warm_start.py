"""A prepared process: what it has imported counts, and code that changed meanwhile makes it useless."""

import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from worker.warm_start import PreparedProcess


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A module outside Python's folders that is imported already, like an editable installation's."""
    file = tmp_path / "own_optimizer_for_a_test.py"
    file.write_text("RATE = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.import_module(file.stem)
    yield file
    del sys.modules[file.stem]


def test_the_imports_belong_to_the_device_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that begins with its attempt."""
    ticks = iter([100.0, 103.5, 500.0, 500.25])
    monkeypatch.setattr("time.perf_counter", lambda: next(ticks))
    prepared = PreparedProcess()
    assert prepared.clock().seconds() == 3.75


def test_code_that_is_as_it_was_is_up_to_date() -> None:
    """However much has been imported."""
    assert not PreparedProcess().is_outdated()


def test_a_changed_file_is_noticed(module: Path) -> None:
    """A new process would run the new code; this one has the old one in memory."""
    prepared = PreparedProcess()
    module.write_text("RATE = 2\n")
    os.utime(module, (1, 1))
    assert prepared.is_outdated()


def test_a_removed_file_is_noticed(module: Path) -> None:
    """Like a changed one."""
    prepared = PreparedProcess()
    module.unlink()
    assert prepared.is_outdated()
