"""Structured logs on standard error: one line an event, with time, level and ids. A full disk costs lines only."""

import logging
import sys
from typing import Any

import structlog
from structlog.typing import EventDict

from worker.reporting.log import steady_stream

IDS = ("experiment", "run", "attempt")
"""The subjects of an event; whoever logs names the run, and its experiment follows."""


def configure_logs(process: str) -> None:
    """Log events of this process as `key=value` lines that name the process."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            _add_experiment,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.LogfmtRenderer(
                key_order=["timestamp", "level", "process", "event", *IDS], drop_missing=True
            ),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(file=steady_stream(sys.stderr)),
    )
    structlog.contextvars.bind_contextvars(process=process)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")


def keep_standard_streams() -> None:
    """Let nothing that prints, libraries among it, end this process because the disk behind its output is full."""
    sys.stdout, sys.stderr = steady_stream(sys.stdout), steady_stream(sys.stderr)


def _add_experiment(_logger: Any, _method: str, event: EventDict) -> EventDict:
    """Add the experiment, whose id a run's begins with."""
    run = event.get("run")
    if isinstance(run, str) and "experiment" not in event:
        event["experiment"] = run.rpartition("-")[0]
    return event
