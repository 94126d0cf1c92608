"""Scaling experiments as specifications: which runs they mean, and every fault in words."""

from typing import Any

import pytest

from orchestrator.kinds.comparison import ComparisonSpec
from orchestrator.kinds.registry import read_spec
from orchestrator.kinds.scaling import ScalingSpec, TokenBudget
from orchestrator.specs.text import parse
from tests.factories.scaling import scaling_fields, scaling_spec
from tests.factories.sweep import refusal_of


def test_sizes_times_budgets_are_cells_with_their_own_steps() -> None:
    spec = scaling_spec(budgets=[{"tokens": 10_240}, {"tokens_per_parameter": 0.5}])
    rows = [(cell.model, cell.parameters, cell.steps) for cell in spec.cells()]
    assert rows == [
        ("gpt2-nano", 81_216, 40),
        ("gpt2-nano", 81_216, 159),
        ("gpt2-micro", 274_640, 40),
        ("gpt2-micro", 274_640, 536),
        ("gpt2-tiny", 858_880, 40),
        ("gpt2-tiny", 858_880, 1678),
    ]


def test_every_cell_holds_all_pairs_where_the_experiment_does() -> None:
    spec = scaling_spec(all_pairs=True)
    assert all(spec.comparison(cell).all_pairs for cell in spec.cells())
    assert not any(scaling_spec().comparison(cell).all_pairs for cell in spec.cells())
    assert read_spec(spec.model_dump_json()) == spec


def test_a_cell_is_a_comparison_with_its_sizes_rates_micro_batch_and_warm_up() -> None:
    spec = scaling_spec(
        sizes=[
            {"model": "gpt2-nano", "micro_batch_sequences": 2, "learning_rates": {"adapm": [0.02, 0.01]}},
            {"model": "gpt2-micro"},
        ],
        warmup_share=0.1,
    )
    small, large = (spec.comparison(cell) for cell in spec.cells())
    assert isinstance(small, ComparisonSpec)
    assert not isinstance(small, ScalingSpec)
    assert small.candidates[1].learning_rates == (0.02, 0.01)
    assert large.candidates[1].learning_rates == (0.004, 0.008)
    assert (small.workload.execution.micro_batch_sequences, large.workload.execution.micro_batch_sequences) == (2, None)
    assert small.workload.schedule.warmup_steps == 4
    assert small.name == "a law · gpt2-nano · 10,240 tokens"


def test_the_runs_are_those_of_all_cells_seed_by_seed_and_small_models_first() -> None:
    spec = scaling_spec()
    runs = spec.first_runs()
    assert len(runs) == spec.run_count() == 3 * 2 * 2 * 2
    assert [run.spec.seed for run in runs] == [1] * 12 + [2] * 12
    assert [run.spec.workload.model for run in runs[:12:4]] == ["gpt2-nano", "gpt2-micro", "gpt2-tiny"]
    assert {run.spec.workload.content_hash() for run in runs} == {
        spec.comparison(cell).workload.content_hash() for cell in spec.cells()
    }


@pytest.mark.parametrize(
    ("changes", "pointer", "words"),
    [
        (
            {"warmup_share": 0.1, "workload": {"schedule": {"warmup_steps": 5}}},
            "/workload/schedule/warmup_steps", "must be left out where warmup_share says the warm-up",
        ),
        ({"sizes": [{"model": "gpt9"}]}, "/sizes/0/model", "must be one of gpt2-tiny,"),
        ({"sizes": [{"model": "gpt2-nano"}, {"model": "gpt2-nano"}]}, "/sizes/1/model", "is given twice"),
        (
            {"sizes": [{"model": "gpt2-nano", "learning_rates": {"lion": [0.1]}}]},
            "/sizes/0/learning_rates/lion",
            "no candidate has that name; known: adamw, adapm",
        ),
        (
            {"sizes": [{"model": "gpt2-nano", "learning_rates": {"adamw": [0.1]}}]},
            "/sizes/0",
            "cannot be trained for 40 steps: has 1 of the 2 rates",
        ),
        (
            {"sizes": [{"model": "gpt2-nano", "micro_batch_sequences": 64}]},
            "/sizes/0",
            "must be at most budget.batch_sequences = 4",
        ),
        ({"budgets": [{}]}, "/budgets/0", "must have either tokens or tokens_per_parameter"),
        ({"budgets": [{"tokens": 1, "tokens_per_parameter": 1}]}, "/budgets/0", "must have either"),
        ({"budgets": [{"tokens": 10}]}, "/budgets", "is 0 steps of gpt2-tiny; must be 1 to"),
        ({"budgets": [{"tokens": 10_240}, {"tokens": 10_241}]}, "/budgets", "two budgets are 40 steps of gpt2-tiny"),
        (
            {"tuning": {"method": "random", "search": ["lr"], "seeds": [7, 8, 9], "replicates": 3}, "seeds": [1, 2, 3]},
            "/tuning/search",
            "must be left out: scaling experiments tune the learning rate alone",
        ),
        ({"baseline": "lion"}, "/baseline", "must be one of adamw, adapm"),
        ({"workload": {"model": "gpt2-tiny"}}, "/workload/model", "is said by sizes; leave it out here"),
        ({"workload": {"budget": {"steps": 3}}}, "/workload/budget/steps", "follows from budgets; leave it out here"),
        ({"workload": {"data": {"sequence_length_tokens": 999}}}, "/workload/data/sequence_length_tokens", "most 256"),
        ({"workload": {"schedule": {"warmup_steps": 50}}}, "/workload/schedule/warmup_steps", "must be below"),
        ({"seeds": list(range(256)), "sizes": [{"model": name} for name in ("gpt2-nano", "gpt2-micro", "gpt2-tiny")],
          "budgets": [{"tokens": 10_240 * (1 + index)} for index in range(7)]}, "/candidates", "at most 10000"),
    ],
)  # fmt: skip
def test_faults_say_where_and_what_is_allowed(changes: dict[str, Any], pointer: str, words: str) -> None:
    assert words in refusal_of(scaling_fields(**changes))[pointer]


def test_numbers_may_be_written_as_people_write_them() -> None:
    """Whole ones for fractions, and round ones with an exponent, in each language."""
    for text in ("tokens: 1.024e4", '{"tokens": 10240.0}'):
        assert TokenBudget(**parse(text, "budget")).tokens == 10_240
    assert TokenBudget(**parse("tokens_per_parameter: 20", "budget")).tokens_per_parameter == 20.0
    assert scaling_spec(warmup_share=0).warmup_share == 0.0
