"""The task `regression`: the linear regression of AdaPM's theorem 1, for SGD and accelerated SGD.

The training loss is half of the squared error, so that its gradient is the paper's, (<x, W> - y) x, averaged over the
step's samples (the paper takes one). The validation loss is the excess risk, computed and not sampled. With
`schedule.shape: phases` the step sizes are the appendix's; with the optimizer `asgd`, the option `spectral_decay` is
the problem's a.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from worker.spec import RunSpec
from worker.tasks.linear_problem import LinearProblem
from worker.tasks.specs import RegressionTask


class LinearModel(nn.Module):
    """<x, W> with W = 0 at the start, in float64: excess risks fall below what float32 resolves."""

    def __init__(self, dimension: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(dimension, dtype=torch.float64))

    def forward(self, inputs: Tensor) -> Tensor:
        """(count, dimension) → (count,)."""
        return inputs @ self.weight


@dataclass(frozen=True)
class Samples:
    """Some samples of a step."""

    inputs: Tensor
    """x, shape (count, dimension)."""
    outputs: Tensor
    """y, shape (count,)."""
    batch_samples: int
    """Samples of the whole step."""


class Regression:
    """Draws the samples of (seed, step) and knows the risk of any weights."""

    def __init__(self, model: nn.Module, problem: LinearProblem, spec: RunSpec) -> None:
        """`model` is a `LinearModel` of the problem's dimension."""
        self.model, self._problem, self._seed = model, problem, spec.seed
        self._weight = model.get_parameter("weight")
        self.data_hash = problem.data_hash
        self.batch_sequences = self.tokens_per_step = spec.workload.budget.batch_sequences

    def draw(self, step: int, micro_batch_sequences: int) -> Sequence[Samples]:
        """The samples of `step` (from 0)."""
        inputs, outputs = self._problem.samples(self._seed, step, self.batch_sequences)
        pieces = zip(
            torch.split(inputs, micro_batch_sequences), torch.split(outputs, micro_batch_sequences), strict=True
        )
        return [Samples(x, y, self.batch_sequences) for x, y in pieces]

    def training_loss(self, micro_batch: Samples) -> Tensor:
        """Its share of half the mean squared error of the step."""
        device = self._weight.device
        errors = self.model(micro_batch.inputs.to(device)) - micro_batch.outputs.to(device)
        loss: Tensor = errors.square().sum() / (2 * micro_batch.batch_samples)
        return loss

    def validation_loss(self, micro_batch_sequences: int) -> float:
        """The excess risk, exactly."""
        del micro_batch_sequences  # nothing is sampled
        return self._problem.excess_risk(self._weight)


def linear_problem(spec: RunSpec) -> LinearProblem:
    """The problem that a spec with the task `regression` names."""
    task = spec.workload.task
    assert isinstance(task, RegressionTask)
    return LinearProblem(task)
