"""The studies by name: every module of this folder that has a `STUDY`, in the paper's order."""

import pkgutil
from functools import cache
from importlib import import_module

from orchestrator import studies
from orchestrator.errors import NotFoundError
from orchestrator.studies.study import Study


@cache
def all_studies() -> tuple[Study, ...]:
    """Found by looking, so that a new study is one new file."""
    modules = (import_module(f"{studies.__name__}.{each.name}") for each in pkgutil.iter_modules(studies.__path__))
    found = [module.STUDY for module in modules if hasattr(module, "STUDY")]
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
