"""One thing that `adapm-bench doctor` has looked at: what was found there, and the way out of what is wrong."""

from pydantic import BaseModel


class Check(BaseModel):
    """One thing that was looked at."""

    name: str
    ok: bool
    """False where something is broken: the service, or runs on this machine, would fail."""
    found: str
    way_out: str = ""
    """What to do about it; beside `ok`, what is worth doing although nothing is broken. Empty where all is well."""


def passes(name: str, found: str) -> Check:
    """Nothing to do."""
    return Check(name=name, ok=True, found=found)


def notice(name: str, found: str, way_out: str) -> Check:
    """It works, and could be better."""
    return Check(name=name, ok=True, found=found, way_out=way_out)


def fails(name: str, found: str, way_out: str) -> Check:
    """It does not work, and this mends it."""
    return Check(name=name, ok=False, found=found, way_out=way_out)
