"""`python -m api.processes.sweep_driver`: the process of one sweep's driver, which the dispatcher starts.

It reads its order from the standard input, and builds what the driver needs.
"""

import json
import os
import sys
from pathlib import Path

import structlog

from api.processes.lifetime import stop_with_parent
from orchestrator.dispatch.ray_process import connect_to_ray
from orchestrator.jobs import ExperimentId
from orchestrator.logs import configure_logs, keep_standard_streams
from orchestrator.store.database import Database
from orchestrator.sweeps.keeper import DriverOrder

log = structlog.get_logger(__name__)


def drive() -> None:
    """Drive the sweep that the first line of the standard input names; end at once when that input does."""
    keep_standard_streams()
    configure_logs("sweep")
    # Unbuffered: what follows the line belongs to the thread that waits for the end of the input.
    line = open(sys.stdin.fileno(), "rb", buffering=0, closefd=False).readline()  # noqa: SIM115  # stays open
    if not line.endswith(b"\n"):
        raise SystemExit("no order came on the standard input; `adapm-bench up` starts this process")
    order = DriverOrder(**json.loads(line))
    stop_with_parent(lambda: os._exit(0))
    database = Database(order.database_url)
    connect_to_ray(order.ray_address)
    from orchestrator.sweeps.driver import SweepDriver  # loads Ray Tune, after `stop_with_parent`

    try:
        SweepDriver(database, order.database_url, ExperimentId(order.sweep_id), Path(order.folder)).drive()
    except Exception:
        log.exception("the driver breaks off; it is started again", sweep=order.sweep_id)
        sys.stdout.flush()
        os._exit(1)
    os._exit(0)  # Ray's own ending takes a second, and there is nothing left to tell


if __name__ == "__main__":
    drive()
