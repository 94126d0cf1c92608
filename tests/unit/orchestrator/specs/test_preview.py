"""The preview of a specification."""

import pytest

from orchestrator.specs.footprints import Footprints, footprint_question
from orchestrator.specs.preview import preview
from orchestrator.specs.text import parse
from tests.architecture.tree import REPOSITORY
from tests.integration.api_service import comparison_fields
from worker.records.footprint import Footprint, OptimizerFootprint


@pytest.fixture
def footprints(tmp_path) -> Footprints:
    return Footprints(tmp_path)


def look(fields, footprints, measured=()):
    return preview(
        fields, missing=lambda spec: [], warnings=lambda spec: ["slow"], measured=lambda model: measured,
        footprints=footprints, power=lambda spec: None,
    )  # fmt: skip


def test_runs_steps_and_tokens_are_counted(footprints):
    report = look(comparison_fields(), footprints)
    assert report.is_acceptable()
    assert (report.runs, report.steps, report.tokens) == (4, 40, 40 * 2 * 128)
    assert report.cost is None
    assert report.memory == ()
    assert report.warnings == ("slow",), "which is no reason to refuse it"


@pytest.mark.parametrize("fields", [None, [], "text", {}, {"name": 3}])
def test_anything_else_has_faults_and_nothing_more(footprints, fields):
    report = look(fields, footprints)
    assert not report.is_acceptable()
    assert report.faults
    assert report.runs is None


def test_memory_is_that_of_the_footprint_which_was_counted(footprints, monkeypatch):
    questions: list[object] = []

    def known(question):
        questions.append(question)
        adapm = OptimizerFootprint(optimizer="adapm", title="AdaPM", options={}, state_bytes=7)
        return Footprint(
            model="gpt2-tiny", parameters=1, parameter_bytes=4, gradient_bytes=4, optimizers=(adapm,),
            baseline_bytes=None,
        )  # fmt: skip

    monkeypatch.setattr(footprints, "find", known)
    candidates = [
        {"optimizer": "adapm", "learning_rates": [0.1], "options": {"rank_ratio": 0.1, "weight_decay": 0.0}},
        {"optimizer": "adapm", "learning_rates": [0.1], "options": {"rank_ratio": 0.123}, "label": "odd rank"},
        {"optimizer": "adapm", "learning_rates": [0.1], "options": {"solver": "svd"}, "label": "other solver"},
    ]
    report = look(comparison_fields(candidates=candidates), footprints)
    assert questions == [footprint_question("gpt2-tiny", 0.1)]
    assert [(row.candidate, row.state_bytes, row.total_bytes) for row in report.memory] == [("adapm", 7, 15)]


def test_rules_change_what_is_kept_so_that_no_footprint_holds(footprints, monkeypatch):
    questions: list[object] = []
    monkeypatch.setattr(footprints, "find", questions.append)
    candidates = [{"optimizer": "adapm", "learning_rates": [0.1], "rules": ["*=full"]}]
    assert look(comparison_fields(candidates=candidates), footprints).memory == ()
    assert questions == []


DOCS = REPOSITORY / "docs"


def example(name):
    return parse((DOCS / name).read_text(), name)


def test_a_scaling_experiment_counts_the_runs_of_all_of_its_cells(footprints):
    report = look(example("example-scaling.yaml"), footprints)
    assert (report.kind, report.runs, report.growing) == ("scaling", 90, False)
    assert report.models == ("gpt2-nano", "gpt2-micro", "gpt2-tiny")
    assert report.steps == 30 * (293 + 586 + 1172)  # 150,000, 300,000 and 600,000 tokens in steps of 8 × 64
    assert report.tokens == report.steps * 8 * 64


def test_a_sweep_counts_trials_and_what_it_may_take_at_the_most(footprints):
    report = look(example("example-sweep.yaml"), footprints)
    assert (report.kind, report.runs, report.growing) == ("sweep", 16, True)
    assert report.steps == 16 * 200


def test_the_specification_of_one_run_is_sent_where_it_belongs(footprints):
    (fault,) = look(example("example-sft.yaml"), footprints).faults
    assert "adapm-bench run" in fault.allowed


def test_samples_are_not_called_tokens(footprints):
    run = example("example-regression.yaml")
    candidate = {"optimizer": "asgd", "learning_rates": [0.1]}
    fields = {"name": "theory", "workload": run["workload"], "candidates": [candidate], "seeds": [1, 2]}
    report = look(fields, footprints)
    assert (report.models, report.tokens, report.batch_unit) == (("linear",), 8_000, "samples")


def test_memory_is_unknown_where_a_sweep_looks_for_what_it_depends_on(footprints, monkeypatch):
    adamw = OptimizerFootprint(optimizer="adamw", title="AdamW", options={}, state_bytes=7)
    answer = Footprint(
        model="gpt2-tiny", parameters=1, parameter_bytes=4, gradient_bytes=4, optimizers=(adamw,), baseline_bytes=None,
    )  # fmt: skip
    monkeypatch.setattr(footprints, "find", lambda question: answer)
    report = look(example("example-sweep.yaml"), footprints)
    assert [(row.candidate, row.model, row.total_bytes) for row in report.memory] == [("adamw", "gpt2-tiny", 15)]
