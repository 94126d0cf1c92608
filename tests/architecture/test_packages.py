"""The packages are this checkout's, hide nothing of Python's, and their files and functions stay small."""

import ast
import importlib
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest

from tests.architecture.tree import PACKAGES, REPOSITORY, product_files

LONGEST_FILE = 450
LONGEST_FUNCTION = 60
LONG_FILES: dict[str, str] = {}
"""Files that may be longer, each with its reason."""
LONG_FUNCTIONS: dict[str, str] = {}
"""`path:function` that may be longer, each with its reason."""


def lines_of(path: str) -> list[str]:
    """The lines of a file of the repository."""
    return (REPOSITORY / path).read_text(encoding="utf-8").splitlines()


def functions() -> Iterator[tuple[str, int]]:
    """(`path:name`, lines) of every function of the product, its docstring not counted."""
    for path in product_files():
        for node in ast.walk(ast.parse((REPOSITORY / path).read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert node.end_lineno is not None
                length = node.end_lineno - node.lineno + 1
                first = node.body[0]
                if ast.get_docstring(node) is not None:
                    assert first.end_lineno is not None
                    length -= first.end_lineno - first.lineno + 1
                yield f"{path}:{node.name}", length


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_is_this_checkouts(package: str):
    module = importlib.import_module(package)
    assert module.__file__ is not None
    assert Path(module.__file__).resolve() == REPOSITORY / package / "__init__.py"


def test_nothing_shadows_the_standard_library():
    """Only what lies at the top of the path can: a module inside a package is imported by its full name."""
    top_level = {PurePosixPath(path).parts[0].removesuffix(".py") for path in product_files()}
    assert top_level & sys.stdlib_module_names == set()


def test_files_are_short():
    long = {path: len(lines_of(path)) for path in product_files() if len(lines_of(path)) > LONGEST_FILE}
    assert {path: length for path, length in long.items() if path not in LONG_FILES} == {}
    assert set(LONG_FILES) - set(long) == set(), "no longer long: take it off the list"


def test_functions_are_short():
    long = {name: length for name, length in functions() if length > LONGEST_FUNCTION}
    assert {name: length for name, length in long.items() if name not in LONG_FUNCTIONS} == {}
    assert set(LONG_FUNCTIONS) - set(long) == set(), "no longer long: take it off the list"


def test_every_package_is_in_the_distribution():
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    packaged = set(project["tool"]["setuptools"]["packages"])
    folders = {".".join(PurePosixPath(path).parent.parts) for path in product_files() if path.split("/")[0] in PACKAGES}
    assert folders - packaged == set()
    assert packaged - folders == set()
