"""Looks of the doctor's that do not end as looks should."""

import os
import signal
import time

from api.cli.doctor.finding import Check
from orchestrator.settings import Settings


def hang(_settings: Settings) -> list[Check]:
    """A driver that never answers."""
    time.sleep(600)
    return []


def crash(_settings: Settings) -> list[Check]:
    """A library that breaks."""
    os.kill(os.getpid(), signal.SIGSEGV)
    return []


def stumble(_settings: Settings) -> list[Check]:
    """A fault of the look itself."""
    raise KeyError("what nobody thought of")
