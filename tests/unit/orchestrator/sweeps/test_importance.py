"""Importances: asking whether they can be had at once never waits, and after a while they can."""

import sys
import time

from orchestrator.sweeps import importance


def test_asking_makes_them_come():
    deadline = time.monotonic() + 120
    while not importance.is_loaded():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert "optuna" in sys.modules
