"""A real small file system: a tmpfs in a mount namespace of its own, so that no privilege of this machine is needed.

What runs on it is started there; everybody else looks at its files through `/proc/<pid>/root`.
"""

import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

BLOCK = b"\0" * 2**16


class SmallDisk:
    """A file system of some megabytes at `folder`, for the process that `start` starts and its children."""

    def __init__(self, folder: Path, mebibytes: int) -> None:
        self.folder = folder
        self._mount = f'mount -t tmpfs -o size={mebibytes}m,mode=0755 tmpfs "{folder}" && exec "$@"'
        folder.mkdir(exist_ok=True)
        self._pid = 0

    def command(self, arguments: Sequence[str]) -> list[str]:
        """The command in the namespace, in the very process that is started."""
        return ["unshare", "--map-root-user", "--mount", "sh", "-c", self._mount, "sh", *arguments]

    def start(self, arguments: Sequence[str], log: Path, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        """Start a command; its standard output and error go into `log`, which may lie on the disk."""
        with log.open("ab") as file:
            process = subprocess.Popen(self.command(arguments), stdout=file, stderr=file, env=dict(environment))
        self._pid = process.pid
        return process

    def path(self) -> Path:
        """The folder as other processes see it."""
        return Path(f"/proc/{self._pid}/root{self.folder}")

    def fill(self) -> None:
        """Leave not a byte."""
        fill_up(self.path())

    def make_room(self) -> None:
        """Undo `fill`."""
        (self.path() / "ballast").unlink()


def small_disk(folder: Path, mebibytes: int) -> SmallDisk:
    """A small disk; skips the test where this machine permits no namespace or no mount in it."""
    disk = SmallDisk(folder, mebibytes)
    try:
        tried = subprocess.run(disk.command(["true"]), capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("install unshare (apt-get install util-linux)")
    if tried.returncode != 0:
        pytest.skip(f"no file system can be mounted here: {tried.stderr.strip()}")
    return disk


def fill_up(folder: Path) -> Path:
    """Write until not a byte is left; the file to be deleted."""
    ballast = folder / "ballast"
    with ballast.open("ab", buffering=0) as file:
        for block in (BLOCK, b"\0"):
            with suppress(OSError):
                while file.write(block):
                    pass
    return ballast
