"""The port between the training loop and what is trained."""

from typing import Protocol

import torch


class Task(Protocol):
    """A model with its losses; everything random in it is a function of (seed, step)."""

    model: torch.nn.Module
    tokens_per_step: int
    data_hash: str
    """SHA-256 over the data that the losses are taken on."""

    def training_loss(self, step: int) -> torch.Tensor:
        """The loss of the batch of `step` (from 0), a scalar with its graph; nats per token."""

    def validation_loss(self) -> float:
        """The loss on the held-out sequences, in nats per token; leaves the model in training mode."""
