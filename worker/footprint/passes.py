"""The memory that a step takes for a while, counted by running it on tensors without storage.

    forward, loss, backward, clipping     the task's own code on the real model, once with 2 and once with 3 sequences:
                                          every moment then is a line, fixed_bytes + bytes_per_sequence × sequences
    optimizer.step()                      the real optimizer, with gradients

Counted are the tensors that torch's operators return, in the order in which they come and go on a CPU; `BreakdownMeter`
measures the same of a run. Memory inside an operator, rounding by an allocator and CUDA's own context are not counted.
"""

import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from itertools import accumulate
from logging import getLogger
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._pytree import tree_leaves

from optim.builder import build
from optim.catalog import OptimizerEntry, Scalar
from optim.plan.rules import Rule
from optim.state import state_tensors
from worker.catalog.presets import preset
from worker.families import load_transformers
from worker.models import outline_model, prepare
from worker.records.footprint import MemoryLine, PassMemory
from worker.spec.parts import Execution, Precision
from worker.tasks.next_token import summed_loss

if TYPE_CHECKING:
    from transformers.modeling_utils import PreTrainedModel

_SEQUENCES = (2, 3)  # with 1, torch's operators take shortcuts that larger batches do not
_LAYERS = (2, 3)
_WHOLE_LAYERS = 6
"""Models with no more are counted whole: AdaPM steps small blocks in batches that stop growing with the layers."""
_LOG = getLogger("torch._subclasses.fake_tensor")
_READ_VALUE = torch.ops.aten._local_scalar_dense.default


class StorageMeter(FakeTensorMode):
    """A meter of memory: within the block, tensors have no storage, and their bytes are added up as they come and go.

    A value that is read is 1 or True: checks for finite numbers pass, and a step does what it does in most cases.
    """

    def __init__(self) -> None:
        super().__init__(allow_non_fake_inputs=True)  # type: ignore[no-untyped-call]  # torch publishes no types for it
        self._alive: dict[int, weakref.finalize[..., Any] | None] = {}
        self._changes: list[int] | None = None
        self._depth = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one operator on shapes, and count the storages that it returns."""
        if func is _READ_VALUE:
            return True if args[0].dtype is torch.bool else 1.0 if args[0].dtype.is_floating_point else 1
        self._depth += 1  # a shape may be worked out by other operators, which the real one does not call
        try:
            returned = super().__torch_dispatch__(func, types, args, kwargs)
        finally:
            self._depth -= 1
        if self._changes is not None and not self._depth:
            for value in tree_leaves(returned):
                if type(value) is FakeTensor:
                    self._add(value)
        return returned

    @contextmanager
    def record(self, tensors: Iterable[Tensor]) -> Iterator[list[int]]:
        """Yield the list of changes, in bytes; the storages of `tensors` are left out."""
        self._alive = {tensor.untyped_storage()._cdata: None for tensor in tensors}
        changes: list[int] = []
        self._changes = changes
        _LOG.disabled = True  # an operator whose shapes torch does not know is said in the answer
        try:
            yield changes
        finally:
            _LOG.disabled, self._changes = False, None
            for finalizer in self._alive.values():
                if finalizer is not None:
                    finalizer.detach()

    def _add(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if size and key not in self._alive and self._changes is not None:
            self._changes.append(size)
            self._alive[key] = weakref.finalize(storage, self._release, key, size)

    def _release(self, key: int, size: int) -> None:
        del self._alive[key]
        if self._changes is not None:
            self._changes.append(-size)


class StepCounter:
    """Counts on the model with few layers, 2 and 3: what one more adds, each further one adds again.

    Gradients of earlier micro-batches are there all the time, so that the peak is where activations are most, and the
    optimizer's step either takes its memory parameter by parameter or for all of them at once.
    """

    def __init__(self, model: str) -> None:
        load_transformers()
        self._meter = StorageMeter()
        self._layers = preset(model).layers
        depths = _LAYERS if self._layers > _WHOLE_LAYERS else (self._layers,)
        with self._meter:
            self._models = [outline_model(model, "cpu", layers=layers).train() for layers in depths]

    def passes(self, precision: Precision, length: int) -> tuple[PassMemory, ...]:
        """Return the passes without and with activation checkpointing."""
        pass_memories = []
        for checkpointing in (False, True):  # in this order: it cannot be switched off again
            envelopes = [self._peaks(model, precision, length, checkpointing) for model in self._models]
            lines = tuple(
                MemoryLine(fixed_bytes=self._extend(fixed), bytes_per_sequence=self._extend(slopes))
                for alike in zip(*envelopes, strict=False)  # from the steepest on: what is highest with many sequences
                for fixed, slopes in [tuple(zip(*alike, strict=True))]
            )
            pass_memories.append(PassMemory(checkpointing=checkpointing, lines=lines))
        return tuple(pass_memories)

    def transient_bytes(self, entry: OptimizerEntry, options: Mapping[str, Scalar], rules: Sequence[Rule]) -> int:
        """Return the bytes above weights, gradients and state at the highest moment of the optimizer's second step."""
        return self._extend([self._step(model, entry, options, rules) for model in self._models])

    def _extend(self, counts: Sequence[int]) -> int:
        """Return the bytes with all layers, from those with few."""
        return counts[-1] + (self._layers - _LAYERS[-1]) * (counts[-1] - counts[0])

    def _peaks(
        self, model: "PreTrainedModel", precision: Precision, length: int, checkpointing: bool
    ) -> list[tuple[int, int]]:
        """Return (fixed bytes, bytes per sequence) of the highest moments, the steepest first."""
        prepare(model, Execution(activation_checkpointing=checkpointing))
        low_moments, high_moments = (self._moments(model, precision, length, sequences) for sequences in _SEQUENCES)
        slopes = [high - low for low, high in zip(low_moments, high_moments, strict=True)]
        lines = {(low - _SEQUENCES[0] * slope, slope) for low, slope in zip(low_moments, slopes, strict=True)}
        return [*_envelope(lines)][::-1]

    def _moments(self, model: nn.Module, precision: Precision, length: int, sequences: int) -> list[int]:
        """Return the bytes at every moment of a second micro-batch, above weights and optimizer state."""
        parameters = list(model.parameters())
        with self._meter, _compute_as_on_values():
            tokens = torch.zeros(sequences, length, dtype=torch.int64)
            gradients = _give_gradients(parameters)
            with self._meter.record([*parameters, *model.buffers(), *gradients, tokens]) as changes:
                with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
                    loss = summed_loss(model, tokens, tokens) / tokens.numel()
                loss.backward()  # type: ignore[no-untyped-call]  # torch publishes no types for it
                torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            model.zero_grad()
        return list(accumulate(changes, initial=sum(gradient.untyped_storage().nbytes() for gradient in gradients)))

    def _step(
        self, model: nn.Module, entry: OptimizerEntry, options: Mapping[str, Scalar], rules: Sequence[Rule]
    ) -> int:
        parameters = list(model.parameters())
        with self._meter:
            optimizer = build(entry.name, model, lr=entry.learning_rate, options=options, rules=rules)
            for _ in range(2):
                gradients = _give_gradients(parameters)
                with self._meter.record([*parameters, *gradients, *state_tensors(optimizer)]) as changes:
                    optimizer.step()
            model.zero_grad()
        return max(accumulate(changes, initial=0))


def _give_gradients(parameters: Iterable[Tensor]) -> list[Tensor]:
    gradients = []
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
        gradients.append(parameter.grad)
    return gradients


@contextmanager
def _compute_as_on_values() -> Iterator[None]:
    """Make transformers leave out, within the block, a causal mask that attention does not need, as it does on real
    tensors."""
    masks: Any = import_module("transformers.masking_utils")
    original, masks.is_tracing = masks.is_tracing, lambda *_: False
    try:
        yield
    finally:
        masks.is_tracing = original


def _envelope(lines: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the lines, as (fixed, slope), that are the highest for some number of sequences from 1 on; by rising
    slope."""
    remaining_lines = list(lines)
    highest = max(remaining_lines, key=lambda line: (line[0] + line[1], line[1]))
    while True:
        yield highest
        remaining_lines = [line for line in remaining_lines if line[1] > highest[1]]
        if not remaining_lines:
            return
        fixed, slope = highest
        highest = min(remaining_lines, key=lambda line: ((fixed - line[0]) / (line[1] - slope), -line[1]))
