"""The learning rate at every step: a linear warm-up, then one of five shapes (`Schedule`)."""

import math

import torch

from worker.spec.run import Schedule


def lr_factor(step: int, steps: int, schedule: Schedule) -> float:
    """Return the factor on the learning rate at `step` (from 0) of `steps`.

    Warm-up over W steps: (step + 1) / (W + 1), so that no step is wasted at rate 0 and step W is the first at the
    full rate. Then, with f = `final_lr_ratio` and t from 0 to 1, which the step after the last one would have:

        cosine    f + (1 - f) (1 + cos(pi t)) / 2 over all steps after the warm-up, as in nanoGPT and transformers
        linear    1 - (1 - f) t over the same steps
        wsd       the same over the last `decay_share` of all steps, and 1 before (MiniCPM, arXiv 2404.06395)
        constant  1
        phases    the T = steps - W steps are cut into phases of floor(T / log2 T), and the l-th has the factor
                  4^-(l - 1) (AdaPM's paper, appendix, theorem 1's proof)
    """
    warmup, shape = schedule.warmup_steps, schedule.shape
    if step < warmup:
        return (step + 1) / (warmup + 1)
    if shape == "constant":
        return 1.0
    if shape == "phases":
        phase_steps = max(1, math.floor((steps - warmup) / math.log2(max(steps - warmup, 2))))
        return 4.0 ** -((step - warmup) // phase_steps)
    decayed = steps - warmup
    if shape == "wsd":
        decayed = min(decayed, math.ceil(schedule.decay_share * steps))
    fraction = max(0.0, (step - (steps - decayed)) / decayed)
    share_left = 0.5 * (1 + math.cos(math.pi * fraction)) if shape == "cosine" else 1 - fraction
    return schedule.final_lr_ratio + (1 - schedule.final_lr_ratio) * share_left


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
