"""The task `sft`: supervised fine-tuning, next-token cross-entropy on the answers of conversations alone."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from worker.data.batches import IGNORED, answer_rows, drawn_indices, spread_indices
from worker.data.conversation_store import ConversationDataset
from worker.distributed.process_group import ALONE, ProcessGroup
from worker.models import PreTrainedModel
from worker.spec.run import RunSpec


@dataclass(frozen=True, kw_only=True)
class AnswerMicroBatch:
    """Some conversations of a batch, and the batch's answer tokens."""

    inputs: torch.Tensor
    """int64, shape (conversations, length), on the CPU."""
    targets: torch.Tensor
    """Alike; `IGNORED` outside the answers."""
    batch_answer_tokens: int
    """Answer tokens of the whole batch: what the loss is the mean over."""


class FineTuning:
    """Draws conversations by (seed, step) and evaluates on held-out ones that are the same for every run."""

    def __init__(
        self, model: PreTrainedModel, dataset: ConversationDataset, spec: RunSpec, group: ProcessGroup = ALONE
    ) -> None:
        """`model` is on its device already."""
        workload, self._length = spec.workload, spec.workload.data.sequence_length_tokens
        self.model: torch.nn.Module = model
        self.data_hash = dataset.data_hash
        self._sequences, self._group = workload.budget.batch_sequences, group
        self.batch_sequences = self._sequences // group.size
        self.tokens_per_step = self._sequences * self._length
        self._device, self._seed, self._conversations = model.device, spec.seed, dataset.train
        held_out = spread_indices(dataset.validation, workload.evaluation.sequences)
        self._validation = answer_rows(dataset.validation, held_out, self._length)

    def draw(self, step: int, micro_batch_sequences: int) -> Sequence[AnswerMicroBatch]:
        """The batch of `step` in micro-batches; all rows have the same length, so that each costs the same."""
        indices = drawn_indices(self._conversations, seed=self._seed, step=step, count=self._sequences)
        inputs, targets = answer_rows(self._conversations, indices, self._length)
        counted, rows = int((targets != IGNORED).sum()), self._group.shard(self._sequences)
        pieces = _pieces(inputs[rows], targets[rows], micro_batch_sequences)
        return [AnswerMicroBatch(inputs=x, targets=y, batch_answer_tokens=counted) for x, y in pieces]

    def training_loss(self, micro_batch: AnswerMicroBatch) -> torch.Tensor:
        """Cross-entropy summed over the micro-batch's answers, divided by the whole batch's answer tokens; scalar."""
        return self._loss(micro_batch.inputs, micro_batch.targets) / micro_batch.batch_answer_tokens

    @torch.no_grad()
    def validation_loss(self, micro_batch_sequences: int) -> float:
        """Mean cross-entropy over all answer tokens of the held-out conversations; exp() of it is the perplexity."""
        self.model.eval()
        inputs, targets = self._validation
        rows = self._group.shard(len(inputs))
        pieces = _pieces(inputs[rows], targets[rows], micro_batch_sequences)
        losses = [self._loss(x, y).item() for x, y in pieces if len(x)]
        self.model.train()
        return self._group.sum_over_ranks(losses, self._device) / int((targets != IGNORED).sum())

    def _loss(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Summed cross-entropy of the targets that count."""
        logits = self.model(inputs.to(self._device)).logits  # (conversations, length, vocabulary)
        flat = targets.to(self._device).flatten()
        return F.cross_entropy(logits.float().flatten(0, 1), flat, ignore_index=IGNORED, reduction="sum")


def _pieces(
    inputs: torch.Tensor, targets: torch.Tensor, micro_batch_sequences: int
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Both in pieces of so many rows."""
    return zip(torch.split(inputs, micro_batch_sequences), torch.split(targets, micro_batch_sequences), strict=True)
