"""Optimizers by name: what this project ships (`table.py`), and what installed packages add, each allowed by name.
`pytorch_optimizer.NAME` is a class of that library, unchecked, which no list has.

A package names an `OptimizerEntry` in its metadata, and the operator names the optimizer in the environment:

    [project.entry-points."adapm_bench.optimizers"]
    signum = "my_package.entry:SIGNUM"

    export ADAPM_BENCH_OWN_OPTIMIZERS=signum

Nothing of a package that is not named there is imported. The entry's module should import no torch: it is loaded
wherever specifications are checked; what the entry's `factory` names is imported by trainings alone.
"""

import os
import re
from collections.abc import Mapping
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import TypeGuard

from ..errors import OwnOptimizerError, UnknownOptimizerError
from ..nearest import unknown
from .records import OptimizerEntry
from .table import CATALOG, unchecked

GROUP = "adapm_bench.optimizers"
VARIABLE = "ADAPM_BENCH_OWN_OPTIMIZERS"

_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


def entries() -> tuple[OptimizerEntry, ...]:
    """Return all optimizers: ours, then those of installed packages that the operator allows, in the environment's
    order.

    Raises `OwnOptimizerError` if an allowed name is in no installed package, is taken, or its entry cannot be used.
    """
    return CATALOG + _own_entries(os.environ.get(VARIABLE, ""))


def names() -> tuple[str, ...]:
    """Return the names of all optimizers, in catalog order."""
    return tuple(entry.name for entry in entries())


def knows(name: str) -> bool:
    """Return whether an entry has that name; packages are loaded for names only that we do not ship."""
    return _find_known(name) is not None


def entry(name: str) -> OptimizerEntry:
    """Return the entry of that name; raises `UnknownOptimizerError`."""
    if (match := _find_known(name)) is not None:
        return match
    raise UnknownOptimizerError(unknown("optimizer", name, names()))


def find(name: str) -> OptimizerEntry | None:
    """Return the entry of that name; None if this process has none, as of what was stored when another was
    allowed."""
    try:
        return entry(name)
    except (UnknownOptimizerError, OwnOptimizerError):
        return None


def _find_known(name: str) -> OptimizerEntry | None:
    return _find(CATALOG, name) or unchecked(name) or _find(entries(), name)


def _find(candidates: tuple[OptimizerEntry, ...], name: str) -> OptimizerEntry | None:
    return next((candidate for candidate in candidates if candidate.name == name), None)


@lru_cache(maxsize=4)
def _own_entries(allowed: str) -> tuple[OptimizerEntry, ...]:
    """Return the entries that the environment allows in these words; each package is loaded once a process."""
    names = dict.fromkeys(name.strip() for name in allowed.split(",") if name.strip())
    offered = {point.name: point for point in entry_points(group=GROUP)} if names else {}
    return tuple(_own_entry(name, offered) for name in names)


def _own_entry(name: str, offered: Mapping[str, EntryPoint]) -> OptimizerEntry:
    if _find(CATALOG, name) is not None:
        raise OwnOptimizerError(f"{VARIABLE} names {name!r}, which this project ships; give yours another name")
    if name not in offered:
        offered_names = ", ".join(sorted(offered)) or "none"
        raise OwnOptimizerError(
            f"{VARIABLE} names {name!r}, which no installed package offers under {GROUP!r} (offered: {offered_names}); "
            f"install the package into this environment, or take the name out"
        )
    point = offered[name]
    try:
        entry = point.load()
    except (Exception, SystemExit) as error:  # other people's module: whatever it raises
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise OwnOptimizerError(
            f"{VARIABLE} names {name!r}, whose entry {point.value} cannot be imported: {reason}; mend or reinstall its "
            f"package, or take the name out"
        ) from error
    if not _is_entry(entry):
        raise OwnOptimizerError(
            f"{VARIABLE} names {name!r}, whose entry {point.value} is of type {type(entry).__name__}; it must be an "
            f"{__package__}.OptimizerEntry"
        )
    if entry.name != name or not _NAME.fullmatch(name):
        raise OwnOptimizerError(
            f"optimizer {name!r}: its entry is named {entry.name!r}; entry point and entry need the same name, of "
            f"lower-case letters, digits and hyphens"
        )
    for option in entry.options:
        if (fault := option.fault(option.default)) is not None:
            raise OwnOptimizerError(f"optimizer {name!r}: the default of {option.name}, {option.default!r}, {fault}")
    return entry


def _is_entry(value: object) -> TypeGuard[OptimizerEntry]:
    """Return whether it describes an optimizer, under either of this package's names: `optim`'s entry will do for
    `adapm`."""
    kind = type(value)
    path = f"{kind.__module__}.{kind.__qualname__}"
    return path in ("optim.catalog.records.OptimizerEntry", "adapm.catalog.records.OptimizerEntry")
