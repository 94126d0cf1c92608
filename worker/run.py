"""The whole story of a run: device, data, model, optimizer, training, result.

RunSpec ──► dataset ──► model ──► task ──► optimizer ──► Training ──points──► Reporter
                                                            └──► Result ────► Reporter
"""

import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch

from optim.build import build
from optim.state import state_bytes
from worker.checkpoint import CheckpointStore
from worker.devices import is_out_of_memory, using_device
from worker.environment import describe_environment
from worker.meters.clock import DeviceClock
from worker.meters.memory import MemoryMeter
from worker.models import parameter_counts
from worker.progress import Progress, finite
from worker.protocol import CheckpointNotice
from worker.randomness import seed_everything
from worker.record import Result, Verdict
from worker.reporter import Reporter
from worker.spec import RunSpec
from worker.tasks.registry import TASKS, Data
from worker.termination import Termination
from worker.training import Surroundings, Training
from worker.weights import find_weights

CHECKPOINT_SECONDS: Final = 10.0
CHECKPOINT_FOLDER: Final = "checkpoints"


@dataclass(frozen=True, kw_only=True)
class Folders:
    """Where a run keeps things."""

    run_folder: Path
    """Its own: checkpoints, spooled reports."""
    dataset_folder: Path
    """Prepared token shards, shared by all runs."""


def run(
    spec: RunSpec,
    reporter: Reporter,
    folders: Folders,
    checkpoint: CheckpointNotice | None = None,
    *,
    clock: DeviceClock | None = None,
    termination: Termination | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
) -> Result:
    """Train one run to its result, which is also given to the reporter.

    It goes on from the newest good checkpoint in the run's folder or at `checkpoint`. It takes over the process: the
    global random states, and SIGTERM, threads and deterministic kernels until it returns.

    Args:
        spec: What to train.
        reporter: Takes points, checkpoints and the result.
        folders: Where checkpoints and data are.
        checkpoint: The newest checkpoint that the service knows of.
        clock: Started when the device was taken; by default now.
        termination: Watched the process while it started; by default the watch begins now.
        checkpoint_seconds: Least time between two checkpoints; 0 writes one before each step.

    Raises:
        RunStoppedError: the reporter gave a command, which was obeyed.
        TerminatedError: SIGTERM came, and a checkpoint was written.
        LeaseLostError: the service gave the run to another worker.
        WorkerError: data, device or checkpoints do not fit the spec; each message says what to do.
    """
    clock = clock or DeviceClock()
    termination = termination or Termination()
    with termination, using_device(spec.resources) as device:
        seed_everything(spec.seed)
        workload, entry = spec.workload, TASKS[spec.workload.task.kind]
        data = entry.data(spec, folders.dataset_folder)
        weights = find_weights(workload.initial_weights, folders.dataset_folder) if workload.initial_weights else None
        store = CheckpointStore(folders.run_folder / CHECKPOINT_FOLDER, spec.content_hash())
        memory = MemoryMeter(device)
        execution = _Execution(
            spec,
            data,
            entry.model(spec, data, weights),
            Surroundings(
                device=device,
                reporter=reporter,
                checkpoints=store,
                checkpoint_seconds=checkpoint_seconds,
                memory=memory,
                clock=clock,
                termination=termination,
            ),
        )
        try:
            execution.train(checkpoint)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            execution.out_of_memory = str(error).partition("\n")[0]
        result = execution.result(weights.sha256 if weights else None)
    reporter.finish(result)  # may wait for the service, and SIGTERM ends a waiting process as usual
    return result


class _Execution:
    """One call of `run`: what the result is made of, also where training broke off for want of memory."""

    def __init__(self, spec: RunSpec, data: Data, model: torch.nn.Module, around: Surroundings) -> None:
        self.out_of_memory: str | None = None
        self._spec, self._data, self._model, self._around = spec, data, model, around
        task = spec.workload.task
        self._progress = Progress(steps=spec.workload.budget.steps, loss_name=task.loss_name, loss_unit=task.loss_unit)
        self._optimizer: torch.optim.Optimizer | None = None
        self._resumed_from_step = 0

    def train(self, checkpoint: CheckpointNotice | None) -> None:
        """Bring the model to its device, build the optimizer, resume and train."""
        spec, around = self._spec, self._around
        torch.nn.Module.to(self._model, around.device)  # in place; the override in transformers publishes no types
        task = TASKS[spec.workload.task.kind].task(self._model, self._data, spec)
        chosen = spec.optimizer
        self._optimizer = build(chosen.name, self._model, lr=chosen.lr, options=chosen.options)
        training = Training(task, self._optimizer, spec.workload, self._progress, around)
        self._resumed_from_step = training.resume(checkpoint)
        training.train()

    def result(self, initial_weights_sha256: str | None) -> Result:
        """The record of what was trained and measured up to now."""
        progress = self._progress
        verdict, reason = self._verdict()
        parameters, parameter_bytes = parameter_counts(self._model)
        tokens = progress.step * self._spec.workload.tokens() // self._spec.workload.budget.steps
        productive_seconds = progress.productive_seconds()
        return Result(
            verdict=verdict,
            verdict_reason=reason,
            steps=progress.step,
            tokens=tokens,
            initial_val_loss=finite(progress.initial_val_loss),
            final_val_loss=progress.final_val_loss(),
            final_train_loss=progress.final_train_loss(),
            parameters=parameters,
            parameter_bytes=parameter_bytes,
            optimizer_state_bytes=state_bytes(self._optimizer).total_bytes if self._optimizer else 0,
            peak_memory=self._around.memory.peak(),
            step_seconds_median=statistics.median(progress.step_seconds) if progress.step else None,
            optimizer_seconds_median=statistics.median(progress.optimizer_seconds) if progress.step else None,
            tokens_per_second=tokens / productive_seconds if progress.step else None,
            device_seconds=self._around.clock.seconds(),
            spec_hash=self._spec.content_hash(),
            data_hash=self._data.data_hash,
            initial_weights_sha256=initial_weights_sha256,
            environment=describe_environment(self._around.device),
            resumed_from_step=self._resumed_from_step,
        )

    def _verdict(self) -> tuple[Verdict, str]:
        if self.out_of_memory is None:
            return self._progress.verdict()
        where = f"The device ran out of memory after step {self._progress.step}"
        return Verdict.OUT_OF_MEMORY, f"{where}: {self.out_of_memory}"
