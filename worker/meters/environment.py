"""The environment of a result: device, threads, versions, commit."""

import os
import platform
import socket
import subprocess
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Final

import torch

from worker.meters.nvml import driver_version
from worker.records.result import Environment

COMMIT_VARIABLE: Final = "ADAPM_BENCH_COMMIT"
"""Says the commit where the bench runs without its git folder, as in a container image."""


def describe_environment(device: torch.device) -> Environment:
    """Return the record of this process and machine."""
    return Environment(
        device=device.type,
        device_name=_device_name(device),
        device_memory_bytes=torch.cuda.get_device_properties(device).total_memory if device.type == "cuda" else None,
        driver=driver_version() if device.type == "cuda" else None,
        cuda=torch.version.cuda,
        host=socket.gethostname(),
        threads=torch.get_num_threads(),
        python=platform.python_version(),
        torch=str(torch.__version__),
        transformers=version("transformers"),
        platform=platform.platform(),
        commit=bench_commit(),
    )


def _device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


@cache
def bench_commit() -> str | None:
    """Return the git commit of the bench's own source, or None if nobody knows it."""
    if stated := os.environ.get(COMMIT_VARIABLE):
        return stated
    root = Path(__file__).parents[2]
    if not (root / ".git").exists():
        return None
    try:
        answer = subprocess.run(
            ["git", "-C", str(root), "rev-parse", "--verify", "HEAD"],
            capture_output=True,
            text=True,
            timeout=5,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() or None
