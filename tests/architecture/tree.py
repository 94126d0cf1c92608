"""The Python files of this repository, as git sees them."""

import subprocess
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
PACKAGES = ("optim", "worker", "orchestrator", "dashboards", "api")


def python_files() -> tuple[str, ...]:
    """Paths of all Python files that are tracked, or new and not ignored; relative, sorted."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", "*.py"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    return tuple(sorted({path for path in listed if (REPOSITORY / path).is_file()}))


def product_files() -> tuple[str, ...]:
    """The Python files of the product: everything but tests."""
    return tuple(path for path in python_files() if not path.startswith("tests/"))
