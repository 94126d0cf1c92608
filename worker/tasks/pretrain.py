"""The task `pretrain`: next-token cross-entropy of a causal language model."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from worker.data.batches import Batches, validation_sequences
from worker.data.shards import TokenDataset
from worker.distributed.process_group import ALONE, ProcessGroup
from worker.models import PreTrainedModel
from worker.spec.run import RunSpec


@dataclass(frozen=True, kw_only=True)
class TokenMicroBatch:
    """Some sequences of a batch, and the batch's tokens."""

    sequences: torch.Tensor
    """int64, shape (sequences, length + 1), on the CPU."""
    batch_tokens: int
    """Targets of the whole batch: what the loss is the mean over."""


class Pretraining:
    """Draws batches by (seed, step) and evaluates on sequences that are the same for every run."""

    def __init__(
        self, model: PreTrainedModel, dataset: TokenDataset, spec: RunSpec, group: ProcessGroup = ALONE
    ) -> None:
        """`model` is on its device already; raises `DataError` where the data holds no sequence of that length."""
        workload, length = spec.workload, spec.workload.data.sequence_length_tokens
        self.model: torch.nn.Module = model
        self.data_hash = dataset.manifest.data_hash
        sequences = workload.budget.batch_sequences
        self.batch_sequences, self.tokens_per_step = sequences // group.size, sequences * length
        self._device, self._group, self._rows = model.device, group, group.shard(sequences)
        self._batches = Batches(dataset.train, seed=spec.seed, sequences=sequences, length=length)
        self.validation_text = validation_sequences(
            dataset.validation, sequences=workload.evaluation.sequences, length=length
        )

    def draw(self, step: int, micro_batch_sequences: int) -> Sequence[TokenMicroBatch]:
        """The batch of `step`, a pure function of (seed, step), in micro-batches."""
        pieces = torch.split(self._batches.batch(step, self._rows), micro_batch_sequences)
        return [TokenMicroBatch(sequences=piece, batch_tokens=self.tokens_per_step) for piece in pieces]

    def training_loss(self, micro_batch: TokenMicroBatch) -> torch.Tensor:
        """Cross-entropy summed over the micro-batch, divided by the whole batch's tokens; scalar."""
        return self._loss(micro_batch.sequences) / micro_batch.batch_tokens

    @torch.no_grad()
    def validation_loss(self, micro_batch_sequences: int) -> float:
        """Mean cross-entropy over all validation tokens."""
        self.model.eval()
        ours = self.validation_text[self._group.shard(len(self.validation_text))]
        losses = [self._loss(piece).item() for piece in torch.split(ours, micro_batch_sequences) if len(piece)]
        self.model.train()
        return self._group.sum_over_ranks(losses, self._device) / self.validation_text[:, 1:].numel()

    def _loss(self, sequences: torch.Tensor) -> torch.Tensor:
        """Summed cross-entropy of sequences, int64 (sequences, length + 1) on the CPU."""
        sequences = sequences.to(self._device)
        logits = self.model(sequences[:, :-1]).logits  # (sequences, length, vocabulary)
        return F.cross_entropy(logits.float().flatten(0, 1), sequences[:, 1:].flatten(), reduction="sum")
