"""`adapm-bench sweep-driver`: the process of one sweep's driver; the dispatcher starts it."""

from api.processes.sweep_driver import drive
from orchestrator.logs import keep_standard_streams


def sweep_driver() -> None:
    """The process of one sweep's driver; the dispatcher starts it."""
    keep_standard_streams()
    drive()
