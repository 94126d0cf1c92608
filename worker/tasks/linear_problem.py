"""Theorem 1's linear regression (AdaPM's paper, section 3.1 and appendix): its samples, and its excess risk exactly.

    x ~ N(0, Sigma),  Sigma = diag(i^-a)              y = <x, W*> + noise z,  z ~ N(0, 1)
    W*_i = i^((a - b) / 2), so that Sigma_ii (W*_i)^2 = i^-b
    excess risk of W = E (<x, W> - y)^2 - noise^2 = sum_i Sigma_ii (W_i - W*_i)^2

The paper's section 3.1 prints Sigma_ii W_i = i^-b; its appendix has the square, which the proof needs.
"""

import hashlib
import math
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from worker.spec_base import canonical_json
from worker.tasks.specs import RegressionTask

_UNIT: Final = 2.0**-53


class LinearProblem:
    """One problem; everything in float64, on the CPU."""

    def __init__(self, task: RegressionTask) -> None:
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
        """The samples of a step: x, shape (count, dimension), and y, shape (count,)."""
        drawn = torch.from_numpy(normals(seed, step, count * (self.dimension + 1))).view(count, self.dimension + 1)
        inputs = drawn[:, 1:] * self._deviations
        return inputs, inputs @ self.solution + self._noise * drawn[:, 0]

    def excess_risk(self, weights: Tensor) -> float:
        """How much more than the least possible the expected squared error of these weights is; shape (dimension,)."""
        error = weights.detach().to("cpu", torch.float64) - self.solution
        return float(torch.dot(self.eigenvalues, error * error))


def normals(seed: int, step: int, count: int) -> NDArray[np.float64]:
    """Standard normal numbers, a function of (seed, step), shape (count,): Box and Muller's, 1958.

    Philox's raw stream is fixed for ever, unlike what a library derives from it, so a step stays what it was.
    """
    half = (count + 1) // 2
    raw = np.random.Philox(key=np.array([seed, step], dtype=np.uint64)).random_raw(2 * half)
    uniform = ((raw >> np.uint64(11)).astype(np.float64) + 0.5) * _UNIT  # inside (0, 1)
    radius, angle = np.sqrt(-2.0 * np.log(uniform[:half])), 2.0 * math.pi * uniform[half:]
    return np.concatenate((radius * np.cos(angle), radius * np.sin(angle)))[:count]
