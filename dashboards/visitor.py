"""Who looks at a page, as far as the page shows it: a name to sign out, and whether there are buttons that change."""

from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Visitor:
    """The holder of a key who signed in."""

    label: str
    may_change: bool
    key_id: str
    """What they submit is charged to it."""


VISITOR: ContextVar[Visitor | None] = ContextVar("visitor", default=None)
"""Of the request that is being answered; None where the service asks nobody who they are."""


def visitor() -> Visitor | None:
    """Who looks."""
    return VISITOR.get()


def may_change() -> bool:
    """Whether who looks may cancel, pause, resume and retry."""
    found = VISITOR.get()
    return found is None or found.may_change
