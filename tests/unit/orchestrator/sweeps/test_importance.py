"""Importances: asking whether they can be had at once never waits, and after a while they can."""

import sys

from orchestrator.sweeps import importance
from tests.factories.waiting import until


def test_asking_makes_them_come():
    until(importance.is_loaded, "they can be had")
    assert "optuna" in sys.modules
