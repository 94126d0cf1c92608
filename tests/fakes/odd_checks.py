"""Checks of the doctor that do not end as they should: `python -m tests.fakes.odd_checks NAME` makes one."""

import os
import signal
import sys
import time

from api.cli.admin.checks import answer
from orchestrator.settings import Settings


def hang(_settings: Settings) -> str:
    """A driver that never answers."""
    time.sleep(600)
    return ""


def crash(_settings: Settings) -> str:
    """A library that breaks."""
    os.kill(os.getpid(), signal.SIGSEGV)
    return ""


def stumble(_settings: Settings) -> str:
    """A fault of the check itself, whose message has two lines."""
    raise ValueError("first line\nsecond line")


def chatter(_settings: Settings) -> str:
    """A library that prints."""
    print("loading")
    return "sound"


if __name__ == "__main__":
    answer({check.__name__: check for check in (hang, crash, stumble, chatter)}[sys.argv[1]])
