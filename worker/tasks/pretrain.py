"""The task `pretrain`: next-token cross-entropy of a causal language model."""

from contextlib import AbstractContextManager

import torch
import torch.nn.functional as F
from transformers.modeling_utils import PreTrainedModel

from worker.data.batches import Batches, validation_sequences
from worker.data.shards import TokenDataset
from worker.spec import RunSpec


class Pretraining:
    """Draws batches by (seed, step) and evaluates on sequences that are the same for every run."""

    def __init__(self, model: PreTrainedModel, dataset: TokenDataset, spec: RunSpec) -> None:
        """`model` is on its device already; raises `DataError` where the data holds no sequence of that length."""
        workload, length = spec.workload, spec.workload.data.sequence_length_tokens
        self.model: torch.nn.Module = model
        self.data_hash = dataset.manifest.data_hash
        self.tokens_per_step = workload.budget.batch_sequences * length
        self._device = model.device
        self._bf16 = workload.precision == "bf16"
        self._chunk_sequences = workload.budget.batch_sequences
        self._batches = Batches(dataset.train, seed=spec.seed, sequences=workload.budget.batch_sequences, length=length)
        self._validation = validation_sequences(
            dataset.validation, sequences=workload.evaluation.sequences, length=length
        )

    def training_loss(self, step: int) -> torch.Tensor:
        """Mean cross-entropy over the batch of `step`; scalar."""
        return self._loss(self._batches.batch(step))

    @torch.no_grad()
    def validation_loss(self) -> float:
        """Mean cross-entropy over all validation tokens, in chunks no larger than a training batch."""
        self.model.eval()
        chunks = torch.split(self._validation, self._chunk_sequences)
        total = sum(self._loss(chunk).item() * len(chunk) for chunk in chunks)
        self.model.train()
        return total / len(self._validation)

    def _loss(self, sequences: torch.Tensor) -> torch.Tensor:
        """Mean cross-entropy of sequences, int64 (sequences, length + 1) on the CPU."""
        sequences = sequences.to(self._device)
        with self._autocast():
            logits = self.model(sequences[:, :-1]).logits  # (sequences, length, vocabulary)
        return F.cross_entropy(logits.float().flatten(0, 1), sequences[:, 1:].flatten())

    def _autocast(self) -> AbstractContextManager[object]:
        return torch.autocast(self._device.type, torch.bfloat16, enabled=self._bf16)
