"""A benchmark's result as JSON: the command that measured it, the machine, the figures."""

import json
import platform
import sys
from collections.abc import Mapping
from pathlib import Path

from worker.cpus import usable_cpus


def processor() -> str:
    """The model of the processor, as the kernel knows it."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()


def write_result(path: Path, benchmark: str, figures: Mapping[str, object]) -> None:
    """Write what was measured beside the command that did it; figures replace what is said of the machine."""
    result = {
        "command": " ".join([f"python -m benchmarks.{benchmark}", *sys.argv[1:]]),
        "machine": {"processor": processor(), "cores": usable_cpus()},
        **figures,
    }
    path.write_text(json.dumps(result, indent=2) + "\n")
