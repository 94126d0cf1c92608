"""Environments in which some of the installed distributions alone are to be seen; nothing is downloaded for them."""

import subprocess
from collections.abc import Iterator, Mapping
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def run(*command: object, cwd: Path, path: Path | None = None) -> str:
    """Return the output of the command; it sees no variable of ours but `path` as `PYTHONPATH`. It has to succeed."""
    process = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=variables(cwd, path),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout


def variables(home: Path, path: Path | None) -> Mapping[str, str]:
    """The environment variables of somebody who has just logged in."""
    plain = {"PATH": "/usr/bin:/bin", "HOME": str(home), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    return plain if path is None else {**plain, "PYTHONPATH": str(path)}


def link_distributions(folder: Path, *requirements: str) -> Path:
    """A folder to import from in which those distributions alone are, with what they need."""
    folder.mkdir(parents=True)
    for package in _with_their_needs(requirements):
        for top in {file.parts[0] for file in package.files or () if file.parts[0] not in {"..", "__pycache__"}}:
            if not (folder / top).exists():
                (folder / top).symlink_to(Path(str(package.locate_file(top))))
    return folder


def _with_their_needs(requirements: tuple[str, ...]) -> Iterator[Distribution]:
    waiting, keys = list(map(Requirement, requirements)), set[tuple[str, str]]()
    while waiting:
        wanted = waiting.pop()
        for extra in ("", *wanted.extras):
            if (key := (canonicalize_name(wanted.name), extra)) in keys:
                continue
            keys.add(key)
            package = distribution(wanted.name)
            yield package
            needed = map(Requirement, package.requires or ())
            waiting += [
                requirement
                for requirement in needed
                if requirement.marker is None or requirement.marker.evaluate({"extra": extra})
            ]
