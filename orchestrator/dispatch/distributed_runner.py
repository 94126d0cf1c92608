"""An attempt by several processes: Ray Train's `TorchTrainer`, called from within the attempt's actor.

    AttemptActor ──► TorchTrainer ──► rank 0   lease, reports, checkpoints (worker/rank_attempt.py)
      launches,                  └──► rank 1…  the same steps, no service
      waits

Ray Train places the processes on the actor's node, joins them in a process group (gloo on CPUs, nccl on GPUs) and ends
all of them when one dies. It retries nothing: the queue's table does. The actor says hello and keeps the lease while
the processes start, which takes longer than one process; from rank 0's own hello on only that one gives signs of life.
What counts in the end is the outcome that rank 0 left in the mailbox, whatever Ray Train makes of the processes.
"""

import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import structlog

from orchestrator.dispatch.placements import reserved_bytes
from orchestrator.store.queue.capacity import ProcessGroupShape
from worker.attempt import AttemptExit
from worker.distributed.mailbox import RankMailbox
from worker.errors import LeaseRevokedError, ServiceUnavailableError, WorkerError
from worker.meters.clock import DeviceClock
from worker.records.protocol import Assignment, Heartbeat
from worker.repeating import Repeating
from worker.reporting.client import ServiceClient

log = structlog.get_logger(__name__)


def execute_distributed(service_url: str, run_id: str, attempt: int, token: str, shape: ProcessGroupShape) -> str:
    """Carry out an attempt with so many processes; returns its outcome, as `worker.attempt.execute` does."""
    clock, mailbox = time.time(), RankMailbox(Path(tempfile.mkdtemp(prefix="adapm-bench-ranks-")))
    # From here on SIGTERM is a request: rank 0 hears of it before its next step.
    former = signal.signal(signal.SIGTERM, lambda *_: mailbox.request_stop())
    try:
        with ServiceClient(service_url, run_id, attempt, token) as service:
            assignment = service.hello()
            with _heartbeats_until_rank_zero(service, assignment, mailbox, DeviceClock(devices=shape.processes)):
                from orchestrator.dispatch.ray_train import RankArguments, train  # seconds, which are device time

                arguments = RankArguments(
                    service_url=service_url,
                    assignment=assignment.model_dump_json(),
                    token=token,
                    folder=str(mailbox.path),
                    started_at=clock,
                )
                fault = train(arguments, shape, reserved_bytes(run_id, attempt))
        if (outcome := mailbox.outcome()) is not None:
            return outcome
        if (rank_fault := mailbox.fault()) is not None:
            return f"lost: {rank_fault.as_error()}"
        # Rank 0 was killed, or could not be started.
        reason = fault or "nothing is known"
        return f"lost: a process of the run was killed or crashed, or did not start: {reason}"[:500]
    except LeaseRevokedError as error:
        log.warning("the lease is gone", run=run_id, error=str(error))
        return AttemptExit.LEASE_LOST.value
    except ServiceUnavailableError as error:
        log.error("the service is away", run=run_id, error=str(error))
        return AttemptExit.UNREACHABLE.value
    finally:
        signal.signal(signal.SIGTERM, former)
        shutil.rmtree(mailbox.path, ignore_errors=True)


@contextmanager
def _heartbeats_until_rank_zero(
    service: ServiceClient, assignment: Assignment, mailbox: RankMailbox, clock: DeviceClock
) -> Iterator[None]:
    """Give signs of life until rank 0 does."""
    step = assignment.checkpoint.step if assignment.checkpoint else 0

    def beat() -> bool:
        if mailbox.has_begun():
            return False
        try:
            service.heartbeat(Heartbeat(step=step, device_seconds=clock.seconds()))
        except ServiceUnavailableError as error:
            log.warning("no answer to a heartbeat", error=str(error))
        except WorkerError as error:  # rank 0 gets the same answer
            log.warning("the lease is not ours any more", error=str(error))
            return False
        return True

    heart = Repeating("heartbeat", assignment.heartbeat_seconds, beat)
    heart.start()
    try:
        yield
    finally:
        heart.stop()
