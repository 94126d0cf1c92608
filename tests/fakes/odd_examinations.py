"""Examinations of the doctor that do not end as they should."""

import os
import signal
import time

from api.cli.doctor.check import Check
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
    """A fault of the examination itself."""
    raise KeyError("what nobody thought of")


ODD_ONES = (hang, crash, stumble)
