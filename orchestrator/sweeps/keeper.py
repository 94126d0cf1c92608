"""The keeper of sweeps: sees to it that each sweep that may still get trials has a driver, and no other one has.

A duty of the dispatcher process, of which one on a database leads. A driver that dies is started again, later and
later; what it had found is in the store. A keeper that dies takes its drivers with it: they watch their standard input.
"""

import json
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import structlog

from orchestrator.jobs import ExperimentId
from orchestrator.store.database import Database
from orchestrator.store.leadership import Duty, Leadership
from orchestrator.store.queue.trials import live_sweeps

log = structlog.get_logger(__name__)

ROLE = "sweeps"
TICK_SECONDS = 0.5
MOST_DRIVERS = 4
"""The most drivers at work at once, each with Ray and Tune in its memory; the sweeps behind them wait for their
turn."""
BACKOFF_SECONDS = (0.0, 2.0, 5.0, 15.0, 60.0)
"""Pause before a driver's next start, by how often in a row it has ended without finishing its sweep."""
GOOD_SECONDS = 60.0
"""A driver that lived this long had started well."""


@dataclass(frozen=True, kw_only=True)
class DriverOrder:
    """The order to a driver, as one line of JSON on its standard input: a database's URL may hold a password."""

    sweep_id: str
    database_url: str
    ray_address: str
    folder: str


@dataclass
class _DriverProcess:
    process: subprocess.Popen[bytes] | None = None
    ends: int = 0
    started_at: float = 0.0
    start_after: float = 0.0


class SweepKeeper(Duty):
    """Starts and ends drivers."""

    name = "sweep-keeper"

    def __init__(
        self,
        database: Database,
        leadership: Leadership,
        command: Sequence[str],
        order: Callable[[ExperimentId], DriverOrder],
        log_folder: Path,
    ) -> None:
        """`command` starts a driver, which reads its `order` from its standard input."""
        self._database, self.leadership = database, leadership
        self._command, self._order, self._log_folder = list(command), order, log_folder
        self._drivers: dict[ExperimentId, _DriverProcess] = {}

    def work(self) -> float:
        """Start a driver for each sweep that needs one, and end all others."""
        wanted = live_sweeps(self._database)[:MOST_DRIVERS]
        # Others have some time to leave by themselves: each still waits for trials that end.
        for sweep_id in self._drivers.keys() - set(wanted):
            driver = self._drivers[sweep_id]
            if driver.process is None or driver.process.poll() is not None:
                _kill(driver)
                del self._drivers[sweep_id]
        for sweep_id in wanted:
            self._keep_running(sweep_id, self._drivers.setdefault(sweep_id, _DriverProcess()))
        return TICK_SECONDS

    def step_back(self) -> None:
        """End every driver: the sweeps are another keeper's concern."""
        for driver in self._drivers.values():
            _kill(driver)
        self._drivers.clear()

    close = step_back

    def _keep_running(self, sweep_id: ExperimentId, driver: _DriverProcess) -> None:
        if driver.process is not None and driver.process.poll() is not None:
            status = driver.process.returncode
            if time.monotonic() - driver.started_at > GOOD_SECONDS:
                driver.ends = 0
            pause_seconds = BACKOFF_SECONDS[min(driver.ends, len(BACKOFF_SECONDS) - 1)]
            log.warning(
                "a sweep's driver ended before its sweep", sweep=sweep_id, status=status, again_in=pause_seconds
            )
            _kill(driver)
            driver.ends += 1
            driver.start_after = time.monotonic() + pause_seconds
        if driver.process is None and time.monotonic() >= driver.start_after:
            self._start_driver(sweep_id, driver)

    def _start_driver(self, sweep_id: ExperimentId, driver: _DriverProcess) -> None:
        self._log_folder.mkdir(parents=True, exist_ok=True)
        driver.started_at = time.monotonic()
        with (self._log_folder / f"sweep-{sweep_id}.log").open("ab") as file:
            driver.process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=file, stderr=file, start_new_session=True
            )
        assert driver.process.stdin is not None
        try:
            driver.process.stdin.write(json.dumps(vars(self._order(sweep_id))).encode() + b"\n")
            driver.process.stdin.flush()
        except BrokenPipeError:
            pass  # it is dead already, which the next look finds
        log.info("a sweep's driver starts", sweep=sweep_id, process=driver.process.pid)


def _kill(driver: _DriverProcess) -> None:
    """End a driver's process, at once: it keeps nothing that is not in the store."""
    process, driver.process = driver.process, None
    if process is None:
        return
    process.kill()
    process.wait()
    if process.stdin is not None:
        with suppress(OSError):  # what it was never told is still to be written
            process.stdin.close()
