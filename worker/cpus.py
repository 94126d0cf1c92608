"""CPUs that this process may use: what a binding (`taskset`, Slurm) and a quota leave of the machine's."""

import os
from collections.abc import Iterator
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")
"""A line each: `0::/a/b` of version 2, `4:cpu,cpuacct:/a/b` of version 1."""


def usable_cpus(cgroups: Path = CGROUPS, membership: Path = MEMBERSHIP) -> int:
    """Return the CPUs that this process may use at once, at least 1; a quota is rounded down."""
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, int(min([bound, *_quotas(cgroups, membership)])))


def _quotas(cgroups: Path, membership: Path) -> Iterator[float]:
    """Yield the quotas of this process's control groups and of all above them, in CPUs."""
    for line in _read(membership).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        root = cgroups / controllers
        group = root / path.lstrip("/")
        for folder in (group, *group.parents):
            if folder.is_relative_to(root):
                in_one_file = _read(folder / "cpu.max")
                in_two_files = f"{_read(folder / 'cpu.cfs_quota_us')} {_read(folder / 'cpu.cfs_period_us')}"
                quota, *period = (in_two_files if controllers else in_one_file).split() or [""]
                if quota.isdecimal() and period:  # `max` and -1 are none
                    yield int(quota) / int(period[0])


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
