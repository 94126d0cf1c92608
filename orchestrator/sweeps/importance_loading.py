"""Whether importances can be had at once: Optuna takes two seconds to import, and no page waits for it.

The import begins on a thread of its own when somebody first asks, not with the process: most never look at a sweep.
"""

from functools import cache
from threading import Event, Thread


def is_loaded() -> bool:
    """Whether Optuna is there; where it is not, it is on its way after this call."""
    return _loading().is_set()


@cache
def _loading() -> Event:
    loaded = Event()
    Thread(target=_load, args=(loaded,), name="importance", daemon=True).start()
    return loaded


def _load(loaded: Event) -> None:
    try:
        import orchestrator.sweeps.importance  # noqa: F401
    finally:
        loaded.set()  # also where it failed: the next request then meets the fault itself, and tells of it
