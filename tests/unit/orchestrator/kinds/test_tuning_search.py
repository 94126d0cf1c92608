"""Random search of tuning: what is drawn, alike for all candidates, which runs follow, what is refused."""

import json
from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from orchestrator.kinds.comparison import Candidate, ComparisonSpec
from orchestrator.kinds.scaling import ScalingTuning
from orchestrator.kinds.tuning import Tuning, TuningGroup, TuningRun
from orchestrator.tuning.ranges import AXES
from tests.factories.stores import comparison_spec
from worker.records.result import Verdict


def searched(
    *axes: str, trials: int = 6, optimizers: tuple[str, ...] = ("adamw",), steps: int = 1000
) -> ComparisonSpec:
    tuning = {"seeds": [7, 8], "search": axes or AXES, "method": "random", "trials": trials}
    return comparison_spec(
        optimizers=optimizers, learning_rates=(1e-3,), steps=steps, tuning=Tuning.model_validate(tuning)
    )


def tried(of: ComparisonSpec, name: str = "adamw") -> list[dict[str, Any]]:
    return [dict(each) for each in of.settings(name).values()]


def test_the_first_trial_is_the_candidates_own_setting() -> None:
    assert tried(searched())[0] == {
        "lr": 1e-3, "warmup_steps": 0, "beta1": 0.9, "beta2": 0.95, "weight_decay": 0.1, "clip_grad_norm": 1.0
    }  # fmt: skip


def test_draws_fill_the_priors_and_stay_within() -> None:
    bounds = {
        "lr": (1e-3 / 8, 8e-3), "warmup_steps": (10, 200), "beta1": (0.6, 0.975), "beta2": (0.8, 0.9875),
        "weight_decay": (0.01, 1.0), "clip_grad_norm": (0.25, 4.0),
    }  # fmt: skip
    drawn = tried(searched(trials=200))[1:]
    for field, (low, high) in bounds.items():
        values = [each[field] for each in drawn]
        assert low <= min(values) <= low + 0.1 * (high - low), field
        assert high - 0.1 * (high - low) <= max(values) <= high, field


def test_the_draws_depend_on_the_first_tuning_seed_alone() -> None:
    assert tried(searched()) == tried(searched(trials=20))[:6], "more trials leave the first ones as they are"
    assert [each["lr"] for each in tried(searched())] == [each["lr"] for each in tried(searched("lr"))]
    other = searched().model_copy(update={"tuning": Tuning(seeds=(9, 8), search=AXES, method="random", trials=6)})
    assert tried(other)[0] == tried(searched())[0]
    assert tried(other)[1:] != tried(searched())[1:]


def test_candidates_are_paired_each_in_its_own_range() -> None:
    of = searched("lr", "beta2", optimizers=("adamw", "adapm", "sgd"))
    assert tried(of, "adamw") == tried(of, "adapm")
    tenfold = of.model_copy(
        update={"candidates": (*of.candidates[:2], Candidate(optimizer="sgd", learning_rates=(1e-2,)))}
    )
    rates = zip(tenfold.planned_rates("adamw"), tenfold.planned_rates("sgd"), strict=True)
    assert [other / rate for rate, other in rates] == pytest.approx([10.0] * 6, rel=1e-3)


def test_an_axis_that_a_candidate_has_not_is_skipped_for_it() -> None:
    of = searched(optimizers=("adamw", "sgd"))
    assert set(of.priors("adamw")) == set(AXES)
    assert set(of.priors("sgd")) == {"lr", "warmup", "clip"}
    assert set(tried(of, "sgd")[1]) == {"lr", "warmup_steps", "clip_grad_norm"}


def test_several_rates_are_the_ends_of_the_range() -> None:
    of = searched("lr", trials=50)
    of = of.model_copy(update={"candidates": (Candidate(optimizer="adamw", learning_rates=(1e-4, 1e-3, 1e-2)),)})
    rates = of.planned_rates("adamw")
    assert rates[0] == pytest.approx(1e-3)
    assert 1e-4 <= min(rates) < 2e-4 and 5e-3 < max(rates) <= 1e-2
    assert len(set(rates)) == 50


def test_a_trial_is_a_run_with_its_setting_and_phase_two_has_the_best_one() -> None:
    of = searched(trials=3)
    assert of.run_count() == 3 * 2 + 2
    assert not of.may_need_less()
    runs = of.first_runs()
    assert [run.spec.seed for run in runs] == [7, 7, 7, 8, 8, 8]
    for run, setting in zip(runs, [*tried(of), *tried(of)], strict=True):
        spec = run.spec
        assert of.searched_parameters(0, spec) == setting
        assert spec.optimizer.options == {name: setting[name] for name in ("beta1", "beta2", "weight_decay")}
        assert (spec.workload.schedule.warmup_steps, spec.workload.clip_grad_norm) == (
            setting["warmup_steps"], setting["clip_grad_norm"]
        )  # fmt: skip
    group = TuningGroup(candidate="adamw", model="gpt2-tiny", steps=1000)
    losses = {lr: 2.0 - 0.1 * place for place, lr in enumerate(of.planned_rates("adamw"))}
    ended = [
        TuningRun(lr=lr, seed=seed, ended=True, verdict=Verdict.CONVERGED, loss=loss)
        for lr, loss in losses.items()
        for seed in (7, 8)
    ]
    assert of.follow_up_runs(group, [*ended[:-1], replace(ended[-1], ended=False, verdict=None, loss=None)]) == ()
    judged = of.follow_up_runs(group, ended)
    assert [run.spec.seed for run in judged] == [1, 2]
    assert {json.dumps(of.searched_parameters(0, run.spec)) for run in judged} == {json.dumps(tried(of)[2])}
    assert judged[0].spec.workload == runs[2].spec.workload and judged[0].spec.optimizer == runs[2].spec.optimizer


def test_a_specification_without_a_search_stores_no_word_of_one() -> None:
    assert Tuning().model_dump(mode="json") == {"seeds": [1001, 1002, 1003], "extend_grid": 6}
    assert searched() == ComparisonSpec.model_validate_json(searched().model_dump_json())


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"search": ["beta2"], "method": "random", "trials": 4}, "must contain lr"),
        ({"search": ["lr", "lr"], "method": "random", "trials": 4}, "is given twice"),
        ({"search": ["lr"], "trials": 4}, "must be random"),
        ({"search": ["lr"], "method": "random"}, "how many settings each candidate tries"),
        ({"search": ["lr"], "method": "random", "trials": 4, "extend_grid": 2}, "there is no grid to extend"),
        ({"trials": 4}, "needs search"),
        ({"method": "random"}, "needs search"),
    ],
)
def test_what_makes_no_search_is_refused_with_the_way_out(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        Tuning.model_validate(fields)


def test_so_few_draws_that_nobody_can_tell_their_luck_are_refused() -> None:
    fields = searched(optimizers=("adamw", "adapm"), trials=3).model_dump(mode="json")
    assert ComparisonSpec.model_validate(fields).comparison_count() == 1
    fields["candidates"] = [
        {"optimizer": "adamw", "label": str(place), "learning_rates": [0.001]} for place in range(4)
    ]
    with pytest.raises(ValidationError, match="must be at least 5 for 3 comparisons"):
        ComparisonSpec.model_validate(fields)
    fields["tuning"]["trials"] = 5
    assert ComparisonSpec.model_validate(fields).comparison_count() == 3


def test_rates_too_close_to_tell_trials_apart_are_refused() -> None:
    fields = searched("lr", trials=50).model_dump(mode="json")
    fields["candidates"][0]["learning_rates"] = [0.001, 0.001001]
    with pytest.raises(ValidationError, match="its trials would repeat rates"):
        ComparisonSpec.model_validate(fields)


def test_scaling_experiments_tune_the_rate_alone() -> None:
    with pytest.raises(ValidationError, match="scaling experiments tune the learning rate alone"):
        ScalingTuning.model_validate({"search": ["lr"], "method": "random", "trials": 4})
