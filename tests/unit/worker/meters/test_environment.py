"""The environment record."""

import platform

import pytest
import torch

from worker.meters.environment import COMMIT_VARIABLE, bench_commit, describe_environment


def test_it_names_the_device_the_versions_and_a_stated_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable is for images without a git folder and wins over one."""
    monkeypatch.setenv(COMMIT_VARIABLE, "abc123")
    bench_commit.cache_clear()

    environment = describe_environment(torch.device("cpu"))

    bench_commit.cache_clear()
    assert environment.device == "cpu"
    assert environment.device_name
    assert environment.torch == torch.__version__
    assert environment.python == platform.python_version()
    assert environment.threads == torch.get_num_threads()
    assert environment.commit == "abc123"
