"""The studies by name: every `Study` in a module of `paper/` or `beyond/`, in the paper's order."""

import pkgutil
from functools import cache
from importlib import import_module

from orchestrator.errors import NotFoundError
from orchestrator.studies import beyond, paper
from orchestrator.studies.study import Study


@cache
def all_studies() -> tuple[Study, ...]:
    """Found by looking, so that a new study needs no list."""
    folders = ((paper.__name__, paper.__path__), (beyond.__name__, beyond.__path__))
    modules = (import_module(f"{name}.{each.name}") for name, path in folders for each in pkgutil.iter_modules(path))
    found = [value for module in modules for value in vars(module).values() if isinstance(value, Study)]
    return tuple(sorted(found, key=lambda study: (study.order, study.name)))


def names() -> tuple[str, ...]:
    """All names."""
    return tuple(study.name for study in all_studies())


def study(name: str) -> Study:
    """The study of that name; raises `NotFoundError`, which names the others."""
    for each in all_studies():
        if each.name == name:
            return each
    raise NotFoundError(f"there is no study {name!r}; there are {', '.join(names())}")
