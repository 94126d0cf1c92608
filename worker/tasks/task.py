"""The port between the training loop and what is trained.

One optimizer step, as the loop takes it:

    micro_batches = task.draw(step, micro_batch_sequences)      # data; all of the step's batch, in pieces
    for micro_batch in micro_batches:
        task.training_loss(micro_batch).backward()              # forward, backward; gradients add up
    optimizer.step()
"""

from collections.abc import Sequence
from typing import Protocol, TypeVar

import torch

MicroBatch = TypeVar("MicroBatch")
"""A micro-batch, which a task hands itself from `draw` to `training_loss`; the loop never looks inside."""


class Task(Protocol[MicroBatch]):
    """A model with its losses; everything random in it is a function of (seed, step).

    The loop calls every method under the run's autocast (bf16 or none), so a task says nothing about precision, but
    takes its losses from logits in fp32. It never changes weights, gradients or the global random states.
    """

    model: torch.nn.Module
    tokens_per_step: int
    """Positions that the model is trained on in one step, padding included: what a batch costs."""
    batch_sequences: int
    """Sequences (prompts, examples) of one step's batch that this process trains on: the largest micro-batch there is.
    With several ranks it is an even part of the batch; `tokens_per_step` is about the whole."""
    data_hash: str
    """SHA-256 over the data that the losses are taken on."""

    def draw(self, step: int, micro_batch_sequences: int) -> Sequence[MicroBatch]:
        """Return the batch of `step` (from 0), with several ranks this rank's rows of it, in micro-batches: everything
        that a step needs besides the weights.

        Reading, tokenising, padding and (`rlhf`) generating and rewarding happen here and are timed as data. Tensors
        stay on the CPU, so that only the micro-batch at work takes memory on the device.

        Returns the batch's sequences in order, cut after every `micro_batch_sequences` of them; the last micro-batch
        holds what is left over. The batch itself must not depend on `micro_batch_sequences`. Each micro-batch carries
        the number that the losses of the *whole* batch are divided by (tokens that count), so that its share is exact.
        """

    def training_loss(self, micro_batch: MicroBatch) -> torch.Tensor:
        """Return the micro-batch's share of the batch's loss, an fp32 scalar with its graph.

        The loss's sum over this micro-batch divided by the count of the whole batch: over all micro-batches of a step
        the shares add up to the mean over the whole batch, in nats per token, however unevenly it was cut. It is a
        function of weights and micro-batch alone; where activations are recomputed in the backward pass, it repeats
        itself.
        """

    def validation_loss(self, micro_batch_sequences: int) -> float:
        """Return the loss on the held-out sequences, in nats per token, the same sequences for every run; with several
        ranks each takes its rows, and all get the sum.

        At most `micro_batch_sequences` sequences at a time, without a graph; leaves the model in training mode.
        """
