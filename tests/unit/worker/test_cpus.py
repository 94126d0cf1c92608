"""CPUs are counted that this process may use: by its binding, and by the quotas of its control groups."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from worker.cpus import usable_cpus

TWO = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")


def write(folder: Path, files: dict[str, str]) -> tuple[Path, Path]:
    """A tree of control groups, and the file that says which of them a process is in."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"{text}\n")
    return folder / "cgroup", folder / "membership"


def test_a_binding_leaves_what_it_names():
    program = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
    program += "from worker.cpus import usable_cpus; print(usable_cpus())"
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert process.stdout == "1\n"


@TWO
@pytest.mark.parametrize(
    "files",
    [
        {"membership": "0::/", "cgroup/cpu.max": "100000 100000"},
        {"membership": "0::/", "cgroup/cpu.max": "199999 100000"},
        {"membership": "0::/", "cgroup/cpu.max": "20000 100000"},
        {"membership": "0::/job/step", "cgroup/job/cpu.max": "100000 100000", "cgroup/job/step/cpu.max": "max 100000"},
        {
            "membership": "4:cpu,cpuacct:/job\n3:memory:/",
            "cgroup/cpu,cpuacct/job/cpu.cfs_quota_us": "50000",
            "cgroup/cpu,cpuacct/job/cpu.cfs_period_us": "50000",
        },
        {  # a container sees its own group as the root
            "membership": "1:cpu:/docker/abc",
            "cgroup/cpu/cpu.cfs_quota_us": "100000",
            "cgroup/cpu/cpu.cfs_period_us": "100000",
        },
    ],
)
def test_a_quota_leaves_its_whole_cpus(tmp_path: Path, files: dict[str, str]):
    assert usable_cpus(*write(tmp_path, files)) == 1


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"membership": "0::/", "cgroup/cpu.max": "max 100000"},
        {"membership": "0::/", "cgroup/cpu.max": "100000000 100000"},
        {"membership": "1:cpu:/", "cgroup/cpu/cpu.cfs_quota_us": "-1", "cgroup/cpu/cpu.cfs_period_us": "100000"},
        {"membership": "0::/own", "cgroup/other/cpu.max": "100000 100000"},
        {"membership": "3:memory:/own", "cgroup/memory/own/cpu.max": "100000 100000"},
    ],
)
def test_without_a_quota_below_it_the_binding_counts(tmp_path: Path, files: dict[str, str]):
    assert usable_cpus(*write(tmp_path, files)) == len(os.sched_getaffinity(0))
