"""Imports of libraries without the packages that they load beside what is used of them, seconds for each process."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def absent(*packages: str) -> Iterator[None]:
    """Hide those packages from imports within the block; loaded ones stay."""
    hidden = [package for package in packages if package not in sys.modules]
    for package in hidden:
        sys.modules[package] = None  # type: ignore[assignment]  # Python's own word for "there is none"
    try:
        yield
    finally:
        for package in hidden:
            del sys.modules[package]
