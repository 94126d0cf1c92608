"""Python's garbage collection, paused while libraries are imported.

What imports make is no garbage. Looking through it again and again would make every attempt's start longer.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def pause_collection() -> Iterator[None]:
    """Collect no garbage within the block except by a call of `gc.collect`."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
