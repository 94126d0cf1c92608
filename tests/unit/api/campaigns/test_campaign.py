"""Fixed parts of a campaign's file: seeds, levels, a label; and its refusals."""

import pytest
from pydantic import ValidationError

from api.campaigns.campaign import MOST_STEPS, Stage, Step, level_of
from orchestrator.kinds.comparison import Candidate
from tests.factories.campaigns import campaign

CANDIDATE = Candidate(optimizer="adapm", learning_rates=(2e-3,))


def test_no_two_steps_share_a_seed() -> None:
    """Of the first hundred tries and confirmations on both workloads."""
    plan = campaign()
    steps = [step for step in plan.steps_by_seeds().values() if step.number <= 100]
    seeds = [seed for step in steps for seed in plan.comparison(step, CANDIDATE).seeds]
    assert len(steps) == 300
    assert len({*seeds}) == len(seeds) == 100 * (5 + 20 + 20)


def test_a_step_is_known_by_the_first_seed_of_its_comparison() -> None:
    plan, steps = campaign(), campaign().steps_by_seeds()
    for step in (Step(Stage.TRY, 1), Step(Stage.CONFIRMATION, 7, 1), Step(Stage.CONFIRMATION, MOST_STEPS)):
        assert steps[plan.comparison(step, CANDIDATE).seeds[0]] == step


def test_all_confirmations_together_spend_five_per_cent() -> None:
    levels = [level_of(number) for number in range(1, MOST_STEPS + 1)]
    assert levels[:3] == [pytest.approx(share) for share in (0.025, 0.05 / 6, 0.05 / 12)]
    assert 0.0499 < sum(levels) < 0.05


def test_a_changed_file_is_another_campaign() -> None:
    assert campaign().label() == campaign().label()
    labels = {campaign().label(), campaign(held_out=()).label(), campaign(confirmation_seeds=21).label()}
    assert len(labels) == 3


def test_a_baseline_has_one_learning_rate() -> None:
    with pytest.raises(ValidationError, match="must be one rate"):
        campaign(baseline=Candidate(optimizer="adamw", learning_rates=(1e-3, 2e-3)))
    with pytest.raises(ValidationError, match="has 1 of the 2 rates"):
        campaign().comparison(Step(Stage.TRY, 1), Candidate(optimizer="adapm", learning_rates=(1e-3, 2e-3)))
