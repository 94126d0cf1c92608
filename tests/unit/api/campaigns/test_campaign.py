"""Fixed parts of a campaign's file: seeds, levels, a label; its refusals. The error of a whole campaign and the gains
it finds, simulated with the estimator that judges comparisons."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from pydantic import ValidationError

from api.campaigns.campaign import MOST_STEPS, Stage, Step, level_of
from api.campaigns.ledger import is_improvement
from orchestrator.analysis.estimator import JudgedRuns, conclude, paired_difference
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


CAMPAIGNS, TRIES, SEEDS = 300, 20, 20
Noise = Callable[[np.random.Generator, int], np.ndarray]
NOISE: dict[str, Noise] = {
    "normal": lambda random, count: random.standard_normal(count),
    "long tails": lambda random, count: random.standard_t(3, count) / math.sqrt(3),
    "rare spikes": lambda random, count: random.standard_normal(count) * np.where(random.random(count) < 0.1, 5, 1),
}
"""The noise of a loss; the same for both, so that their differences are symmetric."""


def is_improved(random: np.random.Generator, noise: Noise, gain: float, confirmation: int) -> bool:
    """Confirm a candidate whose loss is lower by `gain` standard deviations of a difference."""
    losses = [dict(enumerate(noise(random, SEEDS) / math.sqrt(2))) for _ in range(2)]
    candidate, baseline = {seed: loss - gain for seed, loss in losses[0].items()}, losses[1]
    differences = np.array([candidate[seed] - baseline[seed] for seed in candidate])
    if differences.mean() > -2 * differences.std(ddof=1) / math.sqrt(SEEDS):
        return False  # at no level that a confirmation has; it saves the time of an exact p-value
    difference = paired_difference(candidate, baseline, margin=0.01)
    judged = (JudgedRuns(losses=loss_by_seed, ended=frozenset(loss_by_seed)) for loss_by_seed in (candidate, baseline))
    return is_improvement(conclude(difference, *judged), difference, confirmation)


@pytest.mark.parametrize("noise", NOISE)
def test_a_campaign_of_equal_optimizers_claims_anything_in_five_per_cent_at_most(noise: str) -> None:
    """Every try is confirmed, which spends most; up to two standard errors of the simulation."""
    random = np.random.default_rng(56)
    wrong = sum(
        any(is_improved(random, NOISE[noise], 0.0, number) for number in range(1, TRIES + 1)) for _ in range(CAMPAIGNS)
    )
    assert 0 < wrong / CAMPAIGNS <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / CAMPAIGNS)


def test_a_gain_of_one_standard_deviation_is_found() -> None:
    """The t-test's power: 0.99 at the first confirmation, 0.87 at the third, 0.67 at the tenth."""
    random = np.random.default_rng(56)
    shares = [np.mean([is_improved(random, NOISE["normal"], 1.0, number) for _ in range(500)]) for number in (1, 3, 10)]
    assert shares == pytest.approx([0.985, 0.91, 0.70], abs=0.06)
