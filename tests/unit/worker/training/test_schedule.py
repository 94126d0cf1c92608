"""The learning-rate schedule."""

from typing import Any

import pytest
import torch
from pydantic import ValidationError
from transformers.optimization import (
    get_cosine_schedule_with_warmup,
    get_linear_schedule_with_warmup,
    get_wsd_schedule,
)

from worker.spec.run import Schedule
from worker.training.schedule import LearningRateScheduler, lr_factor


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


@pytest.mark.parametrize("warmup", [0, 3])
def test_shapes_are_those_of_transformers_after_the_warm_up(warmup: int) -> None:
    """`cosine` and `linear` to zero and to a fraction, `wsd`, `constant`: transformers' schedules at the same step."""
    steps, ratio = 20, 0.25
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)

    def theirs(schedule: torch.optim.lr_scheduler.LambdaLR) -> list[float]:
        return [schedule.lr_lambdas[0](step) for step in range(warmup, steps)]

    def ours(schedule: Schedule) -> list[float]:
        assert [lr_factor(step, steps, schedule) for step in range(warmup)] == [
            (step + 1) / (warmup + 1) for step in range(warmup)
        ]
        return [lr_factor(step, steps, schedule) for step in range(warmup, steps)]

    def made(**fields: Any) -> Schedule:
        return Schedule(warmup_steps=warmup, **fields)

    for shape, get in (("cosine", get_cosine_schedule_with_warmup), ("linear", get_linear_schedule_with_warmup)):
        to_zero = theirs(get(optimizer, warmup, steps))
        assert ours(made(shape=shape, final_lr_ratio=0.0)) == pytest.approx(to_zero, rel=1e-12)
        partly = [ratio + (1 - ratio) * factor for factor in to_zero]
        assert ours(made(shape=shape, final_lr_ratio=ratio)) == pytest.approx(partly, rel=1e-12)
    wsd = get_wsd_schedule(
        optimizer, num_warmup_steps=warmup, num_decay_steps=4, num_training_steps=steps, decay_type="linear",
        min_lr_ratio=ratio,
    )  # fmt: skip
    assert ours(made(shape="wsd", final_lr_ratio=ratio)) == pytest.approx(theirs(wsd), rel=1e-12)
    assert ours(made(shape="wsd", final_lr_ratio=ratio, decay_share=1.0)) == pytest.approx(partly, rel=1e-12)
    assert ours(made(shape="constant")) == [1.0] * (steps - warmup)


def test_a_share_that_nothing_decays_over_is_refused() -> None:
    with pytest.raises(ValidationError, match="says when `wsd` decays, and shape is linear"):
        Schedule(shape="linear", decay_share=0.5)
