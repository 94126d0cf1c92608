"""The submit form: what it sends becomes the specification that a file would hold."""

import pytest

from dashboards.pages.form import DEFAULTS, EMPTY, field_faults, fields_of, grid, read
from optim import catalog
from orchestrator.kinds.comparison import ComparisonSpec
from orchestrator.specs.faults import Fault


def test_the_form_as_it_is_first_shown_is_a_valid_comparison():
    spec = ComparisonSpec.model_validate(fields_of(EMPTY))
    assert [one.optimizer for one in spec.candidates] == ["adamw", "adapm", "adapm-mini"]
    assert {one.learning_rates for one in spec.candidates} == {(0.002, 0.004, 0.008)}, "the optimum lies inside of it"
    assert spec.workload.model == "gpt2-nano" and spec.workload.budget.steps == 150
    assert spec.tuning is not None and not {*spec.tuning.seeds} & {*spec.seeds}, "tuned first, compared on fresh seeds"
    assert len(spec.seeds) == 5


def test_rates_that_are_not_written_follow_the_model():
    adamw, lion = catalog.entry("adamw"), catalog.entry("lion")
    for model, rates in (("gpt2-124m", (0.0003, 0.0006, 0.0012)), ("gpt2-nano", (0.002, 0.004, 0.008))):
        form = read([("use", "adamw"), ("model", model), ("rates:adamw", "")])
        assert form.suggested_rates(adamw) == ", ".join(f"{rate:g}" for rate in rates)
        assert ComparisonSpec.model_validate(fields_of(form)).candidates[0].learning_rates == rates
    assert grid(lion, "gpt2-nano") == grid(lion, "gpt2-124m"), "its steps have another size than Adam's"
    assert grid(adamw, "no such model") == grid(adamw, "gpt2-124m")


@pytest.mark.parametrize("entry", catalog.CATALOG, ids=lambda entry: entry.name)
def test_every_optimizer_of_the_catalog_can_be_chosen_with_the_grid_that_is_suggested(entry):
    form = read([("use", entry.name), ("baseline", entry.name), ("model", "gpt2-124m"), ("tokenizer", "gpt2")])
    candidate = ComparisonSpec.model_validate(fields_of(form)).candidates[0]
    assert candidate.learning_rates == pytest.approx(
        [0.5 * entry.learning_rate, entry.learning_rate, 2 * entry.learning_rate]
    )
    assert grid(entry, "gpt2-124m").count(",") == 2


def test_options_seeds_and_tuning_take_the_types_of_the_specification():
    sent = [
        ("use", "adamw"), ("use", "adapm"), ("seeds", "4 5;6"), ("tuning", "on"), ("tuning_seeds", "0, 1"),
        ("option:adapm:rank_ratio", "0.1"), ("option:adapm:bias_correction", "false"), ("option:adapm:clip", "null"),
        ("option:adapm:solver", "svd"), ("name", "1e5"), ("rates:adapm", "1e-3, 2e-3, 4e-3"),
    ]  # fmt: skip
    spec = ComparisonSpec.model_validate(fields_of(read(sent)))
    assert spec.name == "1e5"
    assert spec.seeds == (4, 5, 6)
    assert spec.tuning is not None and spec.tuning.seeds == (0, 1)
    assert spec.candidates[1].options == {"rank_ratio": 0.1, "bias_correction": False, "clip": None, "solver": "svd"}
    assert spec.candidates[1].learning_rates == (0.001, 0.002, 0.004)


def test_what_is_no_number_stays_text_for_its_fault_to_name():
    fields = fields_of(read([("use", "adamw"), ("steps", "many"), ("seeds", "1, x"), ("rates:adamw", ";")]))
    assert fields["workload"]["budget"]["steps"] == "many"
    assert fields["seeds"] == [1, "x"]
    assert fields["candidates"][0]["learning_rates"] == []


def test_faults_stand_at_their_fields_and_the_rest_together():
    form = read([("use", "adamw"), ("use", "lion")])
    faults = [
        Fault(pointer="/workload/budget/steps", allowed="must be a whole number"),
        Fault(pointer="/candidates/1/learning_rates/0", allowed="must be above 0"),
        Fault(pointer="/candidates/0/options/eps", allowed="too small"),
        Fault(pointer="/candidates", allowed="too many runs"),
    ]
    by_field, others = field_faults(faults, form)
    assert by_field == {
        "steps": ["must be a whole number"], "rates:lion": ["must be above 0"], "option:adamw:eps": ["too small"],
    }  # fmt: skip
    assert [one.allowed for one in others] == ["too many runs"]


def test_unknown_names_and_boxes_do_nothing():
    form = read([("use", "no-such-optimizer"), ("use", "adamw"), ("surprise", "1")])
    assert [one["optimizer"] for one in fields_of(form)["candidates"]] == ["adamw"]
    assert form.value("steps") == DEFAULTS["steps"]
