"""The studies by name: every `Study` in a module of `paper/` or `beyond/` and every file of `claims/`, in their order;
and one's own claims, which lie in a data folder."""

import pkgutil
from functools import cache
from importlib import import_module
from pathlib import Path

from orchestrator.errors import NotFoundError
from orchestrator.studies import beyond, paper
from orchestrator.studies.claim_file import read_claim, registered_claims
from orchestrator.studies.study import Study

CLAIMS = Path(__file__).parent / "claims"


def all_studies(folder: Path | None = None) -> tuple[Study, ...]:
    """Found by looking, so that a new study needs no list; with the claims that were registered in `folder`."""
    shipped = _shipped_studies()
    taken = {study.name for study in shipped}
    own = () if folder is None else registered_claims(folder)
    return (*shipped, *(each for each in own if each.name not in taken))


@cache
def _shipped_studies() -> tuple[Study, ...]:
    folders = ((paper.__name__, paper.__path__), (beyond.__name__, beyond.__path__))
    modules = (import_module(f"{name}.{each.name}") for name, path in folders for each in pkgutil.iter_modules(path))
    found = [value for module in modules for value in vars(module).values() if isinstance(value, Study)]
    found += [read_claim(path).study() for path in CLAIMS.glob("*.yaml")]
    return tuple(sorted(found, key=lambda study: (study.order, study.name)))


def names() -> tuple[str, ...]:
    """All that come with this version."""
    return tuple(study.name for study in all_studies())


def study(name: str, folder: Path | None = None) -> Study:
    """The study of that name; raises `NotFoundError`, which names the others."""
    known = all_studies(folder)
    for each in known:
        if each.name == name:
            return each
    raise NotFoundError(f"there is no study {name!r}; there are {', '.join(each.name for each in known)}")
