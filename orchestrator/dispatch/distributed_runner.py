"""An attempt by several processes: Ray Train's `TorchTrainer`, called from within the attempt's actor.

    AttemptActor ──► TorchTrainer ──► rank 0   lease, reports, checkpoints (worker/rank_attempt.py)
      launches,                  └──► rank 1…  the same steps, no service
      waits

Ray Train places the processes on the actor's node, joins them in a process group (gloo on CPUs, nccl on GPUs) and ends
all of them when one dies. It retries nothing: the queue's table does. The actor says hello and keeps the lease while
the processes start, which takes longer than one process; from rank 0's own hello on only that one gives signs of life.
What counts in the end is the outcome that rank 0 left in the mailbox, whatever Ray Train makes of the processes.
"""

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

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

LAST_WORD_SECONDS = 60.0
"""Where a process dies, the first one gets so long to tell the service why, before all are ended."""

LOOK_SECONDS = 0.2

NODE_LABEL = "ray.io/node-id"
"""Ray's own label of every node."""

RAY_TRAIN = {
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.5",  # the end of the processes is noticed within this
    "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "120",
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",  # one more process a run, for clouds
    "RAY_TRAIN_METRICS_ENABLED": "0",
    "RAY_TRAIN_ENABLE_PRINT_PATCH": "0",  # attempts have logs of their own
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
}


def execute_distributed(service_url: str, run_id: str, attempt: int, token: str, shape: ProcessGroupShape) -> str:
    """Carry out an attempt with so many processes; returns its outcome, as `worker.attempt.execute` does."""
    clock, mailbox = time.time(), RankMailbox(Path(tempfile.mkdtemp(prefix="adapm-bench-ranks-")))
    # From here on SIGTERM is a request: rank 0 hears of it before its next step.
    former = signal.signal(signal.SIGTERM, _stop_handler(mailbox))
    try:
        with ServiceClient(service_url, run_id, attempt, token) as service:
            assignment = service.hello()
            arguments = _RankArguments(
                service_url=service_url,
                assignment=assignment.model_dump_json(),
                token=token,
                folder=str(mailbox.path),
                started_at=clock,
            )
            with _heartbeats_until_rank_zero(service, assignment, mailbox, DeviceClock(devices=shape.processes)):
                fault = _train(arguments, shape, reserved_bytes(run_id, attempt))
        return mailbox.outcome() or _last_words(mailbox, fault)
    except LeaseRevokedError as error:
        log.warning("the lease is gone", run=run_id, error=str(error))
        return AttemptExit.LEASE_LOST.value
    except ServiceUnavailableError as error:
        log.error("the service is away", run=run_id, error=str(error))
        return AttemptExit.UNREACHABLE.value
    finally:
        signal.signal(signal.SIGTERM, former)
        shutil.rmtree(mailbox.path, ignore_errors=True)


@dataclass(frozen=True, kw_only=True)
class _RankArguments:
    """What every process is given."""

    service_url: str
    assignment: str
    """JSON."""
    token: str
    folder: str
    started_at: float
    """When the devices were taken: seconds since 1970, since the processes share no other clock."""


def _stop_handler(mailbox: RankMailbox) -> Any:
    def request_stop(number: int, frame: FrameType | None) -> None:
        mailbox.request_stop()

    return request_stop


def _train(arguments: _RankArguments, shape: ProcessGroupShape, memory_bytes: int) -> str | None:
    """Have the processes train to their end; a sentence where that did not go well. By the memory that each reserves
    Ray's room for them is known afterwards."""
    os.environ.update(RAY_TRAIN)
    import ray  # only now: it reads its environment while it is imported
    from ray.train import FailureConfig, RunConfig, ScalingConfig, TrainingFailedError  # as above
    from ray.train.torch import TorchConfig, TorchTrainer  # as above

    trainer = TorchTrainer(
        _run_rank,
        train_loop_config={"arguments": arguments},
        # Words between processes go over gloo on GPUs too: nccl knows tensors on GPUs only.
        torch_config=TorchConfig(backend="cpu:gloo,cuda:nccl" if shape.gpu else "gloo"),
        scaling_config=ScalingConfig(
            num_workers=shape.processes,
            use_gpu=shape.gpu,
            resources_per_worker={"CPU": shape.cpus, "memory": memory_bytes, **({"GPU": 1} if shape.gpu else {})},
            placement_strategy="STRICT_PACK",
            label_selector={NODE_LABEL: ray.get_runtime_context().get_node_id()},
        ),
        run_config=RunConfig(
            name="ranks",
            storage_path=arguments.folder,
            failure_config=FailureConfig(max_failures=0, controller_failure_limit=0, max_preemption_failures=0),
            callbacks=[_wait_for_rank_zero(arguments.folder)],
        ),
    )
    try:
        trainer.fit()
    except TrainingFailedError as error:
        return " ".join(str(error).split())
    return None


def _wait_for_rank_zero(folder: str) -> Any:
    """A callback of Ray Train's that lets rank 0 tell the service why another process died, before all are ended."""
    from ray.train import UserCallback  # as above

    class Patience(UserCallback):  # type: ignore[misc]  # Ray publishes no types
        """Waits for the outcome by rank 0, unless that is the one that died."""

        def after_exception(self, run_context: Any, worker_exceptions: dict[int, Exception]) -> None:
            deadline = time.monotonic() + LAST_WORD_SECONDS
            while 0 not in worker_exceptions and RankMailbox(Path(folder)).outcome() is None:
                if time.monotonic() > deadline:
                    return
                time.sleep(LOOK_SECONDS)

    return Patience()


def _run_rank(config: dict[str, Any]) -> None:
    """What Ray Train calls in every process, in a thread of its own."""
    import ray.train  # as above
    import ray.train.torch  # as above

    from worker.distributed.process_group import ProcessGroup  # loads torch, in a rank's process alone
    from worker.rank_attempt import follow, lead  # as above

    arguments: _RankArguments = config["arguments"]
    context, device = ray.train.get_context(), ray.train.torch.get_device()
    group = ProcessGroup(
        rank=context.get_world_rank(),
        size=context.get_world_size(),
        local_gpu=device.index or 0,
        mailbox=RankMailbox(Path(arguments.folder)),
    )
    assignment = Assignment.model_validate_json(arguments.assignment)
    if group.is_rank_zero:
        clock = DeviceClock(devices=group.size, started_before_seconds=max(0.0, time.time() - arguments.started_at))
        lead(arguments.service_url, assignment, arguments.token, group, clock)
    else:
        follow(assignment, group)


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


def _last_words(mailbox: RankMailbox, fault: str | None) -> str:
    """What is known where rank 0 has left no word: it was killed, or could not be started."""
    if (left := mailbox.fault()) is not None:
        return f"lost: {left.as_error()}"
    return f"lost: a process of the run was killed or crashed, or did not start: {fault or 'nothing is known'}"[:500]
