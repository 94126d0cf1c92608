"""The processes of one attempt: Ray Train starts them, and each carries out its part of the training.

Ray Train and torch take seconds to load, so this is imported while heartbeats go out already.
"""

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
import ray.train.torch
from ray.train import FailureConfig, RunConfig, ScalingConfig, TrainingFailedError, UserCallback
from ray.train.torch import TorchConfig, TorchTrainer

from orchestrator.store.queue.capacity import ProcessGroupShape
from worker.distributed.mailbox import RankMailbox
from worker.distributed.process_group import ProcessGroup
from worker.meters.clock import DeviceClock
from worker.rank_attempt import follow, lead
from worker.records.protocol import Assignment

LAST_WORD_SECONDS = 60.0
"""The time that the first process gets to report the reason to the service after another died, before all are ended."""

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


@dataclass(frozen=True, kw_only=True)
class RankArguments:
    """The arguments of every process."""

    service_url: str
    assignment: str
    """JSON."""
    token: str
    folder: str
    started_at: float
    """The time when the devices were taken: seconds since 1970, because the processes share no other clock."""


def train(arguments: RankArguments, shape: ProcessGroupShape, memory_bytes: int) -> str | None:
    """Have the processes train to their end; return a sentence where that did not go well. By the memory that each
    reserves Ray's room for them is known afterwards."""
    os.environ.update(RAY_TRAIN)
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
            callbacks=[_Patience(arguments.folder)],
        ),
    )
    try:
        trainer.fit()
    except TrainingFailedError as error:
        return " ".join(str(error).split())
    return None


class _Patience(UserCallback):  # type: ignore[misc]  # Ray publishes no types
    """Lets rank 0 report to the service why another process died, before all are ended."""

    def __init__(self, folder: str) -> None:
        self._mailbox = RankMailbox(Path(folder))

    def after_exception(self, run_context: Any, worker_exceptions: dict[int, Exception]) -> None:
        """Wait for the outcome by rank 0, unless that is the one that died."""
        deadline = time.monotonic() + LAST_WORD_SECONDS
        while 0 not in worker_exceptions and self._mailbox.outcome() is None:
            if time.monotonic() > deadline:
                return
            time.sleep(LOOK_SECONDS)


def _run_rank(config: dict[str, Any]) -> None:
    """Run a rank for Ray Train, in every process, in a thread of its own."""
    arguments: RankArguments = config["arguments"]
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
