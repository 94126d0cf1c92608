"""The packages are this checkout's, and all of them are distributed."""

import importlib
import tomllib
from pathlib import Path, PurePosixPath

import pytest
from setuptools import find_packages

from tests.architecture.tree import PACKAGES, REPOSITORY, product_files


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_is_this_checkouts(package: str):
    module = importlib.import_module(package)
    assert module.__file__ is not None
    assert Path(module.__file__).resolve() == REPOSITORY / package / "__init__.py"


def test_every_package_is_in_the_distribution():
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    packaged = set(find_packages(str(REPOSITORY), include=project["tool"]["setuptools"]["packages"]["find"]["include"]))
    folders = {".".join(PurePosixPath(path).parent.parts) for path in product_files() if path.split("/")[0] in PACKAGES}
    assert folders - packaged == set()
    assert packaged - folders == set()
