"""A run whose checkpoints are copied: what it waits for at its end, and what it holds meanwhile."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.factories.reporters import MemoryReporter
from tests.factories.specification import made_spec
from worker import run as story
from worker.distributed.process_group import ProcessGroup
from worker.remote.checkpoints import RemoteCheckpoints
from worker.remote.folder import RemoteFolder
from worker.run import Folders, run
from worker.spec.run import Resources
from worker.training.device import configured_device


def test_a_run_with_its_result_leaves_the_device_before_it_waits_for_its_best_checkpoint(
    folders: Folders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy of the best one is held up until the device is free; the result comes behind it."""
    departure = threading.Event()
    put = RemoteFolder.put

    @contextmanager
    def watched(resources: Resources, group: ProcessGroup) -> Iterator[torch.device]:
        with configured_device(resources, group) as device:
            yield device
        departure.set()

    def held_up(folder: RemoteFolder, path: Path, name: str) -> None:
        assert "best-" not in name or departure.wait(60)
        put(folder, path, name)

    monkeypatch.setattr(story, "configured_device", watched)
    monkeypatch.setattr(RemoteFolder, "put", held_up)
    remote = RemoteCheckpoints(f"file://{tmp_path}/remote/r1", attempt=1)
    reporter = MemoryReporter()
    run(made_spec(), reporter, replace(folders, remote_checkpoints=remote), keep_best=True)
    assert departure.is_set()
    last = reporter.checkpoints[-1]
    assert last.val_loss is not None and last.path.startswith(remote.folder.url)
