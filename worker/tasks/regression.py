"""The task `regression`: the linear regression of AdaPM's theorem 1, for SGD and accelerated SGD.

The training loss is half of the squared error, so that its gradient is the paper's, (<x, W> - y) x, averaged over the
step's samples (the paper takes one). The validation loss is the excess risk, computed and not sampled. With
`schedule.shape: phases` the step sizes are the appendix's; with the optimizer `asgd`, the option `spectral_decay` is
the problem's a.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from worker.schema import canonical_json
from worker.spec.run import RunSpec
from worker.spec.task import AnyTask, RegressionTask

_UNIT: Final = 2.0**-53


class LinearProblem:
    """Theorem 1's linear regression (AdaPM's paper, section 3.1 and appendix), everything in float64, on the CPU.

        x ~ N(0, Sigma),  Sigma = diag(i^-a)              y = <x, W*> + noise z,  z ~ N(0, 1)
        W*_i = i^((a - b) / 2), so that Sigma_ii (W*_i)^2 = i^-b
        excess risk of W = E (<x, W> - y)^2 - noise^2 = sum_i Sigma_ii (W_i - W*_i)^2

    The paper's section 3.1 prints Sigma_ii W_i = i^-b; its appendix has the square, which the proof needs.
    """

    def __init__(self, task: AnyTask) -> None:
        assert isinstance(task, RegressionTask)
        index = torch.arange(1, task.dimension + 1, dtype=torch.float64)
        self.dimension, self._noise = task.dimension, task.noise
        self.eigenvalues: Tensor = index**-task.a
        """The diagonal of Sigma, shape (dimension,)."""
        self.solution: Tensor = index ** ((task.a - task.b) / 2)
        """W*, shape (dimension,)."""
        self._deviations = self.eigenvalues.sqrt()
        self.data_hash: str = hashlib.sha256(canonical_json(task.model_dump(mode="json"))).hexdigest()
        """Of what the samples are drawn from: a sample is a function of this, seed and step."""

    def samples(self, seed: int, step: int, count: int) -> tuple[Tensor, Tensor]:
        """Return the samples of a step: x, shape (count, dimension), and y, shape (count,)."""
        drawn = torch.from_numpy(normals(seed, step, count * (self.dimension + 1))).view(count, self.dimension + 1)
        inputs = drawn[:, 1:] * self._deviations
        return inputs, inputs @ self.solution + self._noise * drawn[:, 0]

    def excess_risk(self, weights: Tensor) -> float:
        """Return the excess of the expected squared error of these weights over the least possible; shape
        (dimension,)."""
        error = weights.detach().to("cpu", torch.float64) - self.solution
        return float(torch.dot(self.eigenvalues, error * error))


def normals(seed: int, step: int, count: int) -> NDArray[np.float64]:
    """Return standard normal numbers, a function of (seed, step), shape (count,): Box and Muller's, 1958.

    Philox's raw stream is fixed for ever, unlike what a library derives from it, so a step stays what it was.
    """
    half = (count + 1) // 2
    raw = np.random.Philox(key=np.array([seed, step], dtype=np.uint64)).random_raw(2 * half)
    uniform = ((raw >> np.uint64(11)).astype(np.float64) + 0.5) * _UNIT  # inside (0, 1)
    radius, angle = np.sqrt(-2.0 * np.log(uniform[:half])), 2.0 * math.pi * uniform[half:]
    return np.concatenate((radius * np.cos(angle), radius * np.sin(angle)))[:count]


class LinearModel(nn.Module):
    """<x, W> with W = 0 at the start, in float64: excess risks fall below what float32 resolves."""

    def __init__(self, dimension: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(dimension, dtype=torch.float64))

    def forward(self, inputs: Tensor) -> Tensor:
        """(count, dimension) → (count,)."""
        return inputs @ self.weight


@dataclass(frozen=True)
class RegressionBatch:
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

    def draw(self, step: int, micro_batch_sequences: int) -> Sequence[RegressionBatch]:
        """Return the samples of `step` (from 0)."""
        inputs, outputs = self._problem.samples(self._seed, step, self.batch_sequences)
        pieces = zip(
            torch.split(inputs, micro_batch_sequences), torch.split(outputs, micro_batch_sequences), strict=True
        )
        return [RegressionBatch(x, y, self.batch_sequences) for x, y in pieces]

    def training_loss(self, micro_batch: RegressionBatch) -> Tensor:
        """Return its share of half the mean squared error of the step."""
        device = self._weight.device
        errors = self.model(micro_batch.inputs.to(device)) - micro_batch.outputs.to(device)
        loss: Tensor = errors.square().sum() / (2 * micro_batch.batch_samples)
        return loss

    def validation_loss(self, micro_batch_sequences: int) -> float:
        """Return the excess risk, exactly."""
        del micro_batch_sequences  # nothing is sampled
        return self._problem.excess_risk(self._weight)
