"""Lookups: what this project ships (`table.py`) and what installed packages add (`plugins.py`), by name."""

from optim.catalog.plugins import own_entries
from optim.catalog.records import OptimizerEntry
from optim.catalog.table import CATALOG
from optim.errors import UnknownOptimizerError
from optim.nearest import unknown


def entries() -> tuple[OptimizerEntry, ...]:
    """All optimizers: ours, then those of installed packages that the operator allows."""
    return CATALOG + own_entries(CATALOG)


def names() -> tuple[str, ...]:
    """The names of all optimizers, in catalog order."""
    return tuple(entry.name for entry in entries())


def knows(name: str) -> bool:
    """Whether an entry has that name; packages are loaded for names only that we do not ship."""
    return _find(CATALOG, name) is not None or _find(entries(), name) is not None


def entry(name: str) -> OptimizerEntry:
    """The entry of that name; raises `UnknownOptimizerError`."""
    if (found := _find(CATALOG, name) or _find(entries(), name)) is not None:
        return found
    raise UnknownOptimizerError(unknown("optimizer", name, names()))


def _find(among: tuple[OptimizerEntry, ...], name: str) -> OptimizerEntry | None:
    return next((candidate for candidate in among if candidate.name == name), None)
