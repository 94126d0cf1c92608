"""What a specification would mean, before it is submitted."""

import pytest

from orchestrator.footprints import Footprints, Question
from orchestrator.previews import preview
from tests.integration.api_service import comparison_fields
from worker.footprint_records import Footprint, OptimizerFootprint


@pytest.fixture
def footprints(tmp_path) -> Footprints:
    return Footprints(tmp_path)


def look(fields, footprints, measured=()):
    return preview(fields, missing=lambda spec: [], measured=lambda model: measured, footprints=footprints)


def test_runs_steps_and_tokens_are_counted(footprints):
    found = look(comparison_fields(), footprints)
    assert found.accepted()
    assert (found.runs, found.steps, found.tokens) == (4, 40, 40 * 2 * 128)
    assert found.cost is None
    assert found.memory == ()


@pytest.mark.parametrize("fields", [None, [], "text", {}, {"name": 3}])
def test_anything_else_has_faults_and_nothing_more(footprints, fields):
    found = look(fields, footprints)
    assert not found.accepted()
    assert found.faults
    assert found.runs is None


def test_memory_is_that_of_the_footprint_which_was_counted(footprints, monkeypatch):
    asked: list[object] = []

    def known(question):
        asked.append(question)
        kept = OptimizerFootprint(optimizer="adapm", title="AdaPM", options={}, state_bytes=7)
        return Footprint(
            model="gpt2-tiny", parameters=1, parameter_bytes=4, gradient_bytes=4, optimizers=(kept,),
            baseline_bytes=None, notes=(),
        )  # fmt: skip

    monkeypatch.setattr(footprints, "known", known)
    candidates = [
        {"optimizer": "adapm", "learning_rates": [0.1], "options": {"rank_ratio": 0.1, "weight_decay": 0.0}},
        {"optimizer": "adapm", "learning_rates": [0.1], "options": {"rank_ratio": 0.123}, "label": "odd rank"},
        {"optimizer": "adapm", "learning_rates": [0.1], "options": {"solver": "svd"}, "label": "other solver"},
    ]
    found = look(comparison_fields(candidates=candidates), footprints)
    assert asked == [Question(model="gpt2-tiny", rank_ratio=0.1)]
    assert [(one.candidate, one.state_bytes, one.total_bytes) for one in found.memory] == [("adapm", 7, 15)]


def test_rules_change_what_is_kept_so_that_no_footprint_holds(footprints, monkeypatch):
    asked: list[object] = []
    monkeypatch.setattr(footprints, "known", asked.append)
    candidates = [{"optimizer": "adapm", "learning_rates": [0.1], "rules": ["*=full"]}]
    assert look(comparison_fields(candidates=candidates), footprints).memory == ()
    assert asked == []
