"""Perplexity: exp of a loss in nats per token. It is derived from the loss wherever it is shown, and stored nowhere."""

import math
from typing import Final

from worker.tasks.specs import TaskSpec

LARGEST_NATS: Final = 700.0
"""Beyond it exp() leaves the range of float64."""


def perplexity(loss: float | None, task: TaskSpec) -> float | None:
    """Of a mean loss of that task; None where the loss is none in nats per token, or too large."""
    if loss is None or not task.in_nats_per_token or loss > LARGEST_NATS:
        return None
    return math.exp(loss)
