"""The learning-rate schedule."""

import pytest
import torch

from worker.spec.run import Schedule
from worker.training.loop import LearningRateScheduler, lr_factor

# Ten steps, two of warm-up, down towards 0.1, computed by hand: 0.1 + 0.45 (1 + cos(pi k / 8)) for k = 0 … 7.
TABLE = [
    1 / 3,
    2 / 3,
    1.0,
    0.9657457896300791,
    0.868198051533946,
    0.7222075445642904,
    0.55,
    0.37779245543570963,
    0.23180194846605365,
    0.1342542103699209,
]


def test_the_schedule_is_the_written_out_table() -> None:
    """Warm-up rises linearly to the full rate; the cosine falls towards the final ratio."""
    schedule = Schedule(warmup_steps=2, final_lr_ratio=0.1)

    assert [lr_factor(step, 10, schedule) for step in range(10)] == pytest.approx(TABLE, rel=1e-15)


def test_without_warm_up_the_first_step_has_the_full_rate() -> None:
    """And a final ratio of 1 is a constant rate."""
    assert lr_factor(0, 10, Schedule()) == 1.0
    assert [lr_factor(step, 5, Schedule(final_lr_ratio=1.0)) for step in range(5)] == [1.0] * 5


def test_ratios_between_parameter_groups_survive_and_a_loaded_state_does_not_shift_the_full_rate() -> None:
    """Groups keep 2:1, also after a state saved in mid-schedule is loaded into a fresh optimizer."""
    schedule = Schedule(final_lr_ratio=0.1)

    def fresh() -> tuple[torch.optim.Optimizer, LearningRateScheduler]:
        groups = [{"params": [torch.nn.Parameter(torch.zeros(2))], "lr": lr} for lr in (2e-3, 1e-3)]
        optimizer = torch.optim.SGD(groups, lr=0.5)
        return optimizer, LearningRateScheduler(optimizer, 10, schedule)

    first, first_rate = fresh()
    first_rate.apply(7)
    second, second_rate = fresh()
    second.load_state_dict(first.state_dict())
    second_rate.apply(8)

    factor = lr_factor(8, 10, schedule)
    assert [group["lr"] for group in second.param_groups] == [2e-3 * factor, 1e-3 * factor]


def test_phases_quarter_the_rate_as_the_papers_appendix_says() -> None:
    """delta_t = delta_0 / 4^(l - 1) for K (l - 1) <= t <= K l - 1 with K = floor(T / log2 T), counted from 0."""
    schedule, steps = Schedule(shape="phases"), 64
    factors = [lr_factor(step, steps, schedule) for step in range(steps)]
    assert factors == [4.0 ** -(step // 10) for step in range(64)]  # K = floor(64 / 6) = 10
    warmed = [lr_factor(step, 66, Schedule(shape="phases", warmup_steps=2)) for step in range(66)]
    assert warmed == [1 / 3, 2 / 3, *factors]
    assert [lr_factor(0, 1, schedule), lr_factor(0, 2, schedule)] == [1.0, 1.0]
