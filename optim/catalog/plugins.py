"""Own optimizers: entries that installed packages add to the catalog, each allowed by name.

A package names an `OptimizerEntry` in its metadata, and the operator names the optimizer in the environment:

    [project.entry-points."adapm_bench.optimizers"]
    signum = "my_package.entry:SIGNUM"

    export ADAPM_BENCH_OWN_OPTIMIZERS=signum

Nothing of a package that is not named there is imported. The entry's module should import no torch: it is loaded
wherever specifications are checked; what the entry's `factory` names is imported by trainings alone.
"""

import os
import re
from collections.abc import Iterator
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points

from optim.catalog.records import OptimizerEntry
from optim.errors import OwnOptimizerError

GROUP = "adapm_bench.optimizers"
VARIABLE = "ADAPM_BENCH_OWN_OPTIMIZERS"

_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


def own_entries(shipped: tuple[OptimizerEntry, ...]) -> tuple[OptimizerEntry, ...]:
    """The entries that the environment allows, in its order; each package is loaded once a process.

    Args:
        shipped: The entries of this project, whose names are taken.

    Raises:
        OwnOptimizerError: an allowed name is in no installed package, is taken, or its entry cannot be used.
    """
    return _load(os.environ.get(VARIABLE, ""), tuple(entry.name for entry in shipped))


@lru_cache(maxsize=4)
def _load(allowed: str, taken: tuple[str, ...]) -> tuple[OptimizerEntry, ...]:
    return tuple(_entries(dict.fromkeys(name.strip() for name in allowed.split(",") if name.strip()), taken))


def _entries(allowed: dict[str, None], taken: tuple[str, ...]) -> Iterator[OptimizerEntry]:
    if not allowed:
        return
    offered = {point.name: point for point in entry_points(group=GROUP)}
    for name in allowed:
        if name in taken:
            raise OwnOptimizerError(f"{VARIABLE} names {name!r}, which this project ships; give yours another name")
        if name not in offered:
            known = ", ".join(sorted(offered)) or "none"
            raise OwnOptimizerError(
                f"{VARIABLE} names {name!r}, which no installed package offers under {GROUP!r} (offered: {known}); "
                f"install the package into this environment, or take the name out"
            )
        yield _entry(name, offered[name])


def _entry(name: str, point: EntryPoint) -> OptimizerEntry:
    try:
        entry = point.load()
    except Exception as error:  # other people's module: whatever it raises, the way out is theirs
        raise OwnOptimizerError(f"optimizer {name!r}: {point.value} cannot be imported: {error}") from error
    if not isinstance(entry, OptimizerEntry):
        kind = type(entry).__name__
        raise OwnOptimizerError(
            f"optimizer {name!r}: {point.value} is {kind}; it must be an optim.catalog.OptimizerEntry"
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
