"""The learning-rate schedule: linear warm-up, then a cosine or phases, as a pure function of the step."""

import math

import torch

from worker.spec.run import Schedule


def lr_factor(step: int, steps: int, schedule: Schedule) -> float:
    """The factor on the learning rate at `step` (from 0) of `steps`.

    Warm-up over W steps: (step + 1) / (W + 1), so that no step is wasted at rate 0 and step W is the first at the
    full rate. Then the cosine: f + (1 - f) (1 + cos(pi t)) / 2 with t = (step - W) / (steps - W) and f =
    `final_lr_ratio`, as in nanoGPT and transformers' cosine schedule. Or phases: the T = steps - W steps are cut into
    phases of floor(T / log2 T), and the l-th has the factor 4^-(l - 1) (AdaPM's paper, appendix, theorem 1's proof).
    """
    warmup = schedule.warmup_steps
    if step < warmup:
        return (step + 1) / (warmup + 1)
    if schedule.shape == "phases":
        return 4.0 ** -((step - warmup) // _phase_steps(steps - warmup))
    done = (step - warmup) / (steps - warmup)
    return schedule.final_lr_ratio + (1 - schedule.final_lr_ratio) * 0.5 * (1 + math.cos(math.pi * done))


def _phase_steps(steps: int) -> int:
    return max(1, math.floor(steps / math.log2(steps))) if steps > 1 else 1


class LearningRateScheduler:
    """Scales every parameter group by the schedule, so that an optimizer's own ratios between groups survive."""

    def __init__(self, optimizer: torch.optim.Optimizer, steps: int, schedule: Schedule) -> None:
        """Take the groups' present rates as the full ones: make it before a checkpoint is loaded."""
        self._optimizer, self._steps, self._schedule = optimizer, steps, schedule
        self._full = [float(group["lr"]) for group in optimizer.param_groups]

    def apply(self, step: int) -> float:
        """Set the rates of `step`; returns the factor."""
        factor = lr_factor(step, self._steps, self._schedule)
        for group, full in zip(self._optimizer.param_groups, self._full, strict=True):
            group["lr"] = full * factor
        return factor
