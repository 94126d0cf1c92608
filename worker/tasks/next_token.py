"""The tasks `pretrain` and `sft`: next-token cross-entropy of a causal language model, on running text, or on the
answers of conversations alone (supervised fine-tuning)."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from worker.data.batches import IGNORED, Batches, answer_rows, drawn_indices, spread_indices, validation_sequences
from worker.data.conversations import ConversationDataset
from worker.data.shards import TokenDataset
from worker.distributed.process_group import ALONE, ProcessGroup
from worker.spec.run import RunSpec

if TYPE_CHECKING:
    from transformers.modeling_utils import PreTrainedModel

Rows = tuple[Tensor, Tensor]
"""Inputs and targets, int64 (sequences, length) each, on the CPU; targets that do not count are `IGNORED`."""


@dataclass(frozen=True, kw_only=True)
class TokenMicroBatch:
    """Some sequences of a batch, and the number of the batch's targets that count."""

    inputs: Tensor
    """int64, shape (sequences, length), on the CPU."""
    targets: Tensor
    """Alike; `IGNORED` where no loss is taken."""
    batch_tokens: int
    """Targets of the whole batch that count: what the loss is the mean over."""


def summed_loss(model: torch.nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """Return the summed cross-entropy of the targets that count; both int64 (sequences, length) on the model's
    device."""
    logits = model(inputs).logits  # (sequences, length, vocabulary)
    return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten(), ignore_index=IGNORED, reduction="sum")


class NextTokenTask(ABC):
    """Draws batches by (seed, step) and evaluates on held-out sequences that are the same for every run."""

    def __init__(
        self, model: "PreTrainedModel", data_hash: str, validation: Rows, spec: RunSpec, group: ProcessGroup
    ) -> None:
        """`model` is on its device already."""
        workload = spec.workload
        self.model: torch.nn.Module = model
        self.data_hash, self.validation = data_hash, validation
        self._sequences, self._length = workload.budget.batch_sequences, workload.data.sequence_length_tokens
        self.batch_sequences = self._sequences // group.size
        self.tokens_per_step = self._sequences * self._length
        self._device, self._seed, self._group = model.device, spec.seed, group

    @abstractmethod
    def _batch(self, step: int, share: slice) -> tuple[Tensor, Tensor, int]:
        """Return inputs and targets of those rows of the batch, and how many targets of the whole batch count."""

    def draw(self, step: int, micro_batch_sequences: int) -> Sequence[TokenMicroBatch]:
        """Return the batch of `step` in micro-batches; all rows have the same length, so that each costs the same."""
        inputs, targets, counted = self._batch(step, self._group.shard(self._sequences))
        pieces = _pieces(inputs, targets, micro_batch_sequences)
        return [TokenMicroBatch(inputs=x, targets=y, batch_tokens=counted) for x, y in pieces]

    def training_loss(self, micro_batch: TokenMicroBatch) -> Tensor:
        """Return the micro-batch's summed cross-entropy, divided by the whole batch's tokens that count; scalar."""
        return self._loss(micro_batch.inputs, micro_batch.targets) / micro_batch.batch_tokens

    @torch.no_grad()
    def validation_loss(self, micro_batch_sequences: int) -> float:
        """Return the mean cross-entropy over all validation tokens that count; exp() of it is the perplexity."""
        self.model.eval()
        inputs, targets = self.validation
        share = self._group.shard(len(inputs))
        pieces = _pieces(inputs[share], targets[share], micro_batch_sequences)
        losses = [self._loss(x, y).item() for x, y in pieces if len(x)]
        # All ranks make as many passes, since a sharded model's weights are gathered for each: here without a target.
        passes = -(-self._group.most_rows(len(inputs)) // micro_batch_sequences)
        for _ in range(passes - len(losses)):
            self._loss(inputs[:1], torch.full_like(targets[:1], IGNORED))
        self.model.train()
        return self._group.sum_over_ranks(losses, self._device) / int((targets != IGNORED).sum())

    def _loss(self, inputs: Tensor, targets: Tensor) -> Tensor:
        return summed_loss(self.model, inputs.to(self._device), targets.to(self._device))


class Pretraining(NextTokenTask):
    """Training on windows of running text, every token of which is a target."""

    def __init__(
        self, model: "PreTrainedModel", dataset: TokenDataset, spec: RunSpec, group: ProcessGroup = ALONE
    ) -> None:
        """Raises `DataError` if the data holds no sequence of that length."""
        workload, length = spec.workload, spec.workload.data.sequence_length_tokens
        self._batches = Batches(dataset.train, seed=spec.seed, sequences=workload.budget.batch_sequences, length=length)
        text = validation_sequences(dataset.validation, sequences=workload.evaluation.sequences, length=length)
        super().__init__(model, dataset.data_hash, (text[:, :-1], text[:, 1:]), spec, group)

    def _batch(self, step: int, share: slice) -> tuple[Tensor, Tensor, int]:
        text = self._batches.batch(step, share)
        return text[:, :-1], text[:, 1:], self.tokens_per_step


class FineTuning(NextTokenTask):
    """Training on conversations, of which the answers' tokens are the targets."""

    def __init__(
        self, model: "PreTrainedModel", dataset: ConversationDataset, spec: RunSpec, group: ProcessGroup = ALONE
    ) -> None:
        held_out = spread_indices(dataset.validation, spec.workload.evaluation.sequences)
        validation = answer_rows(dataset.validation, held_out, spec.workload.data.sequence_length_tokens)
        super().__init__(model, dataset.data_hash, validation, spec, group)
        self._conversations = dataset.train

    def _batch(self, step: int, share: slice) -> tuple[Tensor, Tensor, int]:
        indices = drawn_indices(self._conversations, seed=self._seed, step=step, count=self._sequences)
        inputs, targets = answer_rows(self._conversations, indices, self._length)
        return inputs[share], targets[share], int((targets != IGNORED).sum())


def _pieces(inputs: Tensor, targets: Tensor, micro_batch_sequences: int) -> Iterator[Rows]:
    """Yield both in pieces of so many rows."""
    return zip(torch.split(inputs, micro_batch_sequences), torch.split(targets, micro_batch_sequences), strict=True)
