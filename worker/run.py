"""The whole story of a run: device, data, model, optimizer, training, result.

RunSpec ──► dataset ──► model ──► task ──► optimizer ──► Training ──points──► Reporter
                                                            └──► Result ────► Reporter
"""

import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Final, Self

import torch

from optim.builder import build
from optim.errors import OptimError
from optim.plan.rules import rule_of
from optim.state import state_bytes
from worker.data.remote_datasets import fetch_missing, fetch_weights
from worker.data.weights import InitialWeights, find_weights
from worker.distributed.process_group import ProcessGroup
from worker.errors import DeviceError, OptimizerError, OutOfMemoryError, RunStoppedError, TerminatedError
from worker.meters.clock import DeviceClock
from worker.meters.environment import describe_environment
from worker.meters.flops import flops_per_token, peak_flops_per_second
from worker.meters.memory import Measurements, MemoryMeter, combine_measurements
from worker.meters.usage import UsageMeter
from worker.models import is_compiler_fault, is_pretrained, parameter_counts, prepare
from worker.records.protocol import Assignment, CheckpointNotice, Command, Stopped
from worker.records.result import Result, Verdict
from worker.remote.checkpoints import RemoteCheckpoints
from worker.reporting.remote_logs import RemoteLogs
from worker.reporting.reporter import Reporter
from worker.spec.run import RunSpec
from worker.tasks.registry import TASKS, TaskData
from worker.tasks.samples import SampleWriter
from worker.termination import Termination
from worker.training.checkpoint import CheckpointStore
from worker.training.checkpoint_transfer import CheckpointUploads, fetch_newest_checkpoint
from worker.training.device import MemoryCap, configured_device, is_out_of_memory, seed_everything
from worker.training.loop import Training, TrainingContext
from worker.training.micro_batch import TrialSteps
from worker.training.progress import TIMES, TrainingProgress, finite_or_none
from worker.training.step import Stepper
from worker.words import pluralize

logger = logging.getLogger(__name__)

CHECKPOINT_SECONDS: Final = 10.0
CHECKPOINT_FOLDER: Final = "checkpoints"


@dataclass(frozen=True, kw_only=True)
class Folders:
    """The folders of a run."""

    run_folder: Path
    """The run's own folder: checkpoints, spooled reports."""
    dataset_folder: Path
    """Prepared token shards, shared by all runs."""
    dataset_url: str | None = None
    """The URL from which missing shards are fetched."""
    remote_checkpoints: RemoteCheckpoints | None = None
    """The remote folder of checkpoints, from which another machine can continue."""
    attempt: int = 1
    """The attempt that writes there."""
    counted_steps: Mapping[int, int] = field(default_factory=dict)
    """The last step that counts of each earlier attempt that left checkpoints there."""

    @classmethod
    def from_assignment(cls, assignment: Assignment) -> Self:
        """Return the folders of an attempt."""
        url = assignment.checkpoint_url
        return cls(
            run_folder=Path(assignment.run_folder),
            dataset_folder=Path(assignment.dataset_folder),
            dataset_url=assignment.dataset_url,
            remote_checkpoints=RemoteCheckpoints(url, assignment.attempt) if url else None,
            attempt=assignment.attempt,
            counted_steps=assignment.counted_steps,
        )


def run(
    spec: RunSpec,
    reporter: Reporter,
    folders: Folders,
    checkpoint: CheckpointNotice | None = None,
    *,
    clock: DeviceClock | None = None,
    termination: Termination | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    micro_batch_sequences: int | None = None,
    retried_smaller: bool = False,
    group: ProcessGroup | None = None,
) -> Result:
    """Train one run to its result, which is also given to the reporter.

    It goes on from the newest good checkpoint in the run's folder or at `checkpoint`. It takes over the process: the
    global random states, and SIGTERM, threads and deterministic kernels until it returns.

    Args:
        reporter: Takes points, checkpoints and the result.
        folders: Where checkpoints and data are.
        checkpoint: The newest checkpoint that the service knows of.
        clock: Started when the device was taken; by default now.
        termination: Watched the process while it started; by default the watch begins now.
        checkpoint_seconds: Least time between two checkpoints; 0 writes one before each step.
        micro_batch_sequences: Instead of the spec's.
        retried_smaller: Whether the caller makes another attempt with half the micro-batch, in a fresh process.
        group: This process's place among those that train the run together; by default it is alone. All but the first
            get a reporter that nobody listens to.

    Raises:
        RunStoppedError: the reporter gave a command, which was obeyed.
        TerminatedError: SIGTERM came, and a checkpoint was written.
        LeaseRevokedError: the service gave the run to another worker.
        OutOfMemoryError: the micro-batch did not fit, and half of it is to be tried.
        WorkerError: data, device or checkpoints do not fit the spec; each message says what to do.
    """
    clock, termination, group = clock or DeviceClock(), termination or Termination(), group or ProcessGroup()
    check_stop = partial(_check_stop, reporter, termination, clock, checkpoint)
    uploading: CheckpointUploads | AbstractContextManager[None] = nullcontext()
    if (remote := folders.remote_checkpoints) is not None and group.is_rank_zero:
        logs = RemoteLogs(remote.folder.url, folders.run_folder, folders.attempt)
        uploading = CheckpointUploads(remote, reporter.checkpoint, logs.copy)
    with (
        termination,
        uploading as uploads,
        configured_device(spec.resources, group) as device,
        UsageMeter((memory := MemoryMeter(device)).nvml) as usage,
    ):
        seed_everything(spec.seed)
        data, weights = _materials(spec, folders, check_stop)
        context = TrainingContext(
            device=device,
            reporter=reporter,
            checkpoints=CheckpointStore(
                folders.run_folder / CHECKPOINT_FOLDER,
                spec.training_hash(),
                folders.attempt,
                also_known_as=spec.content_hash(),
            ),
            checkpoint_seconds=checkpoint_seconds,
            memory=memory,
            usage=usage,
            samples=SampleWriter(spec, folders.dataset_folder) if spec.workload.evaluation.samples else None,
            clock=clock,
            termination=termination,
            cap=MemoryCap(device, spec.workload.execution.memory_cap_gib),
            group=group,
            initial_weights_sha256=weights.sha256 if weights else None,
            copied=uploads.offer if uploads else None,
        )
        # The newest checkpoint that counts, on this machine's disk, where all ranks then look for it together.
        if group.is_rank_zero:
            context.checkpoints.drop_overtaken_checkpoints(folders.counted_steps)
            if remote is not None:
                fetch_newest_checkpoint(remote, context.checkpoints, folders.counted_steps, check_stop)
        group.broadcast(0)
        # No name holds the execution: nothing of it is on the device any more while the result is delivered.
        result = _Execution(spec, data, weights, context, micro_batch_sequences).execute(
            checkpoint, retried_smaller=retried_smaller
        )
    reporter.finish(result)  # may wait for the service, and SIGTERM ends a waiting process as usual
    return result


def _materials(
    spec: RunSpec, folders: Folders, check_stop: Callable[[], None]
) -> tuple[TaskData, InitialWeights | None]:
    """Return the data of the training, and its initial weights if they are not drawn."""
    source, folder = spec.workload.initial_weights, folders.dataset_folder
    if folders.dataset_url is not None:
        fetch_missing(spec.workload.data, folder, folders.dataset_url, check_stop)
        if source is not None:
            fetch_weights(source, folder, folders.dataset_url, check_stop)
    data = TASKS[spec.workload.task.kind].data(spec, folder, check_stop)
    return data, find_weights(source, folder) if source else None


def _check_stop(
    reporter: Reporter, termination: Termination, clock: DeviceClock, checkpoint: CheckpointNotice | None
) -> None:
    """Leave where the service or the system asks for it, before there is anything new to keep."""
    if termination.is_requested:
        raise TerminatedError(
            "told to leave (SIGTERM) while it waited for its data or a checkpoint; the next attempt waits on."
        )
    command = reporter.command()
    if command in (Command.CANCEL, Command.PAUSE):
        step = checkpoint.step if checkpoint else 0
        raise RunStoppedError(Stopped(command=command, step=step, device_seconds=clock.seconds()))


def _lack_of_memory(error: Exception, group: ProcessGroup) -> str:
    """Return the sentence of an out-of-memory error, of this process or of another rank; raises what else it was."""
    reason = group.cause_of(error)
    if is_compiler_fault(reason):
        first_line = str(reason).partition("\n")[0]
        raise DeviceError(
            f"torch.compile failed here: {first_line}. It needs a C++ compiler on a CPU and Triton on a "
            "GPU; or leave workload.execution.compile off."
        ) from error
    if is_out_of_memory(reason):
        return str(reason).partition("\n")[0]
    if reason is error:
        raise error
    raise reason from error


class _Execution:
    """A call of `run`: the parts of the result, also if training broke off for want of memory."""

    def __init__(
        self,
        spec: RunSpec,
        data: TaskData,
        weights: InitialWeights | None,
        context: TrainingContext,
        micro_batch_sequences: int | None,
    ) -> None:
        self._out_of_memory: str | None = None
        self._cut_down_to = micro_batch_sequences
        self._spec, self._data, self._weights, self._context = spec, data, weights, context
        self._entry, task = TASKS[spec.workload.task.kind], spec.workload.task
        self._progress = TrainingProgress(
            steps=spec.workload.budget.steps, loss_name=task.loss_name, loss_unit=task.loss_unit
        )
        self._stepper: Stepper | None = None
        self._resumed_from_step = 0
        self._measured: Measurements | None = None

    def execute(self, checkpoint: CheckpointNotice | None, *, retried_smaller: bool) -> Result:
        """Return the result of training, which a lack of memory is too, unless half the micro-batch is to be tried."""
        group = self._context.group
        try:
            with self._context.cap.apply():
                self._train(checkpoint)
            group.ended_together = True
        except (RunStoppedError, TerminatedError):
            group.ended_together = True  # all processes were told to stop before the same step
            raise
        except (RuntimeError, MemoryError) as error:
            if not group.is_rank_zero:
                raise
            self._out_of_memory = _lack_of_memory(error, group)
            if retried_smaller and self._may_be_smaller():
                size, step = self._progress.micro_batch_sequences, self._progress.step
                batches = "micro-batches" if size is None else f"micro-batches of {pluralize(size, 'sequence')}"
                raise OutOfMemoryError(
                    f"out of memory with {batches} after step {step}: {self._out_of_memory}"
                ) from None
        return self._result()

    def _train(self, checkpoint: CheckpointNotice | None) -> None:
        """Settle the micro-batch, build model, task and optimizer, resume and train."""
        self._progress.micro_batch_sequences = self._micro_batch(checkpoint)
        self._context.memory.restart()
        self._stepper = self._build()
        training = Training(self._stepper, self._spec.workload, self._progress, self._context)
        self._resumed_from_step = training.resume(checkpoint)
        # The checkpoint may be of an attempt with a larger one.
        self._progress.micro_batch_sequences = self._stepper.micro_batch_sequences
        training.train()
        group = self._context.group
        state = state_bytes(self._stepper.optimizer).total_bytes
        own_measurements = self._context.memory.measurements().model_copy(
            update={"optimizer_state_bytes": state, "memory_breakdown": self._progress.memory}
        )
        logger.info("rank %d: %d bytes of optimizer state; %s", group.rank, state, self._progress.memory)
        rank_texts = group.all_gather(own_measurements.model_dump_json())
        self._measured = combine_measurements([Measurements.model_validate_json(text) for text in rank_texts])

    def _micro_batch(self, checkpoint: CheckpointNotice | None) -> int:
        """Return the micro-batch: as an earlier attempt's end says, as the spec says, as the checkpoint says, or the
        largest that fits."""
        if self._cut_down_to is not None:
            return self._cut_down_to
        workload = self._spec.workload
        micro_batch = workload.execution.micro_batch_sequences
        if micro_batch != "auto":
            return micro_batch or workload.budget.batch_sequences // self._context.group.size
        state = self._context.checkpoints.newest(checkpoint)
        if state is not None:
            return int(state["progress"]["micro_batch_sequences"])
        trials = TrialSteps(self._build, self._context.cap)
        return trials.largest_micro_batch(workload.budget.batch_sequences)

    def _build(self) -> Stepper:
        """Return model, task and optimizer, fresh from the spec and on the device."""
        spec, device = self._spec, self._context.device
        model = self._entry.model(spec, self._data, self._weights)
        parts: ModuleType | None = None
        if spec.workload.execution.parallel == "fsdp" and self._context.group.size > 1:
            from worker.distributed import sharding  # FSDP and DTensor take a second to load

            parts = sharding
            sharding.shard_model(model, device, self._context.group.size)
        torch.nn.Module.to(model, device)  # in place; the override in transformers publishes no types
        if is_pretrained(model):
            prepare(model, spec.workload.execution)
        task = self._entry.task(model, self._data, spec, self._context.group)
        chosen = spec.optimizer
        try:
            rules = [rule_of(text) for text in chosen.rules]
            optimizer = build(chosen.name, model, lr=chosen.lr, options=chosen.options, rules=rules)
        except OptimError as error:
            raise OptimizerError(f"{chosen.name} cannot train {spec.workload.model}: {error}") from error
        micro_batch_sequences = self._progress.micro_batch_sequences or task.batch_sequences
        return Stepper(
            task, optimizer, spec.workload, device, micro_batch_sequences, self._context.group, sharding=parts
        )

    def _may_be_smaller(self) -> bool:
        """Return whether to try half the micro-batch; one chosen by trials is already the smallest."""
        execution, micro_batch = self._spec.workload.execution, self._progress.micro_batch_sequences
        return (
            execution.retry_out_of_memory
            and execution.micro_batch_sequences != "auto"
            and micro_batch is not None
            and micro_batch > 1
            and self._stepper is not None
        )

    def _result(self) -> Result:
        """Return the record of what was trained and measured up to now."""
        progress, context = self._progress, self._context
        if self._out_of_memory is None:
            verdict, reason = progress.verdict()
        else:
            verdict = Verdict.OUT_OF_MEMORY
            reason = f"The device ran out of memory after step {progress.step}: {self._out_of_memory}"
        parameters, parameter_bytes = parameter_counts(self._model())
        measured = self._measured or context.memory.measurements()
        return Result(
            verdict=verdict,
            verdict_reason=reason,
            steps=progress.step,
            tokens=progress.step * self._tokens_per_step(),
            initial_val_loss=finite_or_none(progress.initial_val_loss),
            final_val_loss=progress.final_val_loss(),
            lowest_val_loss=finite_or_none(progress.lowest_val_loss),
            final_train_loss=progress.final_train_loss(),
            parameters=parameters,
            parameter_bytes=parameter_bytes,
            optimizer_state_bytes=max(
                measured.optimizer_state_bytes,
                state_bytes(self._stepper.optimizer).total_bytes if self._stepper else 0,
            ),
            peak_memory=measured.peak_memory,
            memory_breakdown=measured.memory_breakdown or progress.memory,
            micro_batch_sequences=progress.micro_batch_sequences,
            **{f"{name}_median": progress.median(name) for name in TIMES},
            **self._speed(),
            device_seconds=context.clock.seconds(),
            productive_seconds=context.group.size * progress.productive_seconds(),
            energy_joules=measured.energy_joules,
            nvml_note=measured.nvml_note,
            spec_hash=self._spec.content_hash(),
            data_hash=self._data.data_hash,
            initial_weights_sha256=self._weights.sha256 if self._weights else None,
            environment=describe_environment(context.device),
            processes=context.group.size,
            resumed_from_step=self._resumed_from_step,
        )

    def _speed(self) -> dict[str, float | None]:
        """Return tokens and model FLOPs per second of steps; no FLOPs if a step does more than the counted passes."""
        workload = self._spec.workload
        steps_per_second = self._progress.steps_per_second()
        tokens_per_second = None if steps_per_second is None else steps_per_second * self._tokens_per_step()
        length = workload.data.sequence_length_tokens
        flops = flops_per_token(self._model(), length) if workload.task.only_passes else None
        achieved = flops * tokens_per_second if flops and tokens_per_second else None
        device = self._context.device
        name = torch.cuda.get_device_name(device) if device.type == "cuda" else ""
        peak = peak_flops_per_second(name, workload.precision)
        return {
            "tokens_per_second": tokens_per_second,
            "flops_per_token": flops,
            "flops_per_second": achieved,
            "model_flops_utilization": achieved / (peak * self._context.group.size) if achieved and peak else None,
        }

    def _tokens_per_step(self) -> int:
        return self._spec.workload.tokens() // self._spec.workload.budget.steps

    def _model(self) -> torch.nn.Module:
        """Return the model; its outline where memory ran out before there was one."""
        if self._stepper:
            return self._stepper.task.model
        with torch.device("meta"):
            return self._entry.model(self._spec, self._data, None)
