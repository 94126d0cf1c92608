"""What is probed, and when: `Workload.probes` (torch-free)."""

from typing import Annotated, Literal

from pydantic import Field

from worker.schema import Count, Spec

ProbeName = Literal["gradient-sparsity", "momentum-spectrum", "residual"]


class Probes(Spec):
    """Measurements of every weight matrix (block) at some steps. They move no loss."""

    every_steps: Count = 100
    """A window of observed steps begins at every multiple of this."""
    window_steps: Count = 1
    """Steps in a row that are observed; the paper compares residuals over 20."""
    kinds: Annotated[tuple[ProbeName, ...], Field(min_length=1)] = (
        "gradient-sparsity",
        "momentum-spectrum",
        "residual",
    )
    """`gradient-sparsity`: rows and columns near zero; `momentum-spectrum`: energy of the largest singular values;
    `residual`: what a low rank drops of the momentum."""
    near_zero: Annotated[float, Field(strict=True, gt=0, lt=1)] = 0.01
    """A row or column is near zero below this fraction of the largest one's norm."""
    rank_ratio: Annotated[float, Field(strict=True, gt=0, le=1)] = 0.05
    """Rank over min(m, n), where the optimizer itself keeps no low-rank momentum."""
    beta1: Annotated[float, Field(strict=True, ge=0, lt=1)] = 0.9
    """Decay rate of the momentum that is kept for the probes alone, where the optimizer keeps none."""

    def due(self, step: int) -> bool:
        """Whether `step` (from 1) is observed."""
        return step >= self.every_steps and step % self.every_steps < self.window_steps
