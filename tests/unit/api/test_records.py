"""Pydantic's errors become faults: a pointer, the value found there, what is allowed; always finite, short JSON."""

import json
from datetime import date
from typing import Any

import pytest
from pydantic import ValidationError

from orchestrator.kinds.comparison import ComparisonSpec
from orchestrator.specs.faults import Fault, pointer, short_json, validation_faults
from tests.integration.api_service import comparison_fields
from worker.spec.run import RunSpec


def faults_of(value: Any) -> tuple[Fault, ...]:
    with pytest.raises(ValidationError) as caught:
        ComparisonSpec.model_validate(value)
    return validation_faults(caught.value, ComparisonSpec)


def test_pointer_escapes_tilde_and_slash():
    assert pointer(("options", "a/b~c", 3)) == "/options/a~1b~0c/3"


def test_an_option_of_no_scalar_type_is_one_fault_and_not_one_for_each_type():
    fields = comparison_fields(candidates=[{"optimizer": "adamw", "learning_rates": [1], "options": {"eps": []}}])
    (fault,) = faults_of(fields)
    assert (fault.pointer, fault.value) == ("/candidates/0/options/eps", [])


def test_a_refused_item_does_not_make_its_list_too_short():
    fields = comparison_fields(seeds=["one"])
    assert faults_of(fields) == (Fault(pointer="/seeds/0", value="one", allowed="must be a valid integer"),)


def test_cross_field_faults_have_their_own_place():
    fields = comparison_fields(baseline="sgd")
    fields["workload"]["schedule"] = {"warmup_steps": 10}
    (fault,) = faults_of(fields)
    assert (fault.pointer, fault.value) == ("/workload/schedule/warmup_steps", 10)
    (fault,) = faults_of(comparison_fields(baseline="sgd"))
    assert (fault.pointer, fault.value) == ("/baseline", "sgd")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (float("nan"), "nan"),
        (float("-inf"), "-inf"),
        (10**400, "1" + "0" * 199 + "…"),
        (2**53, str(2**53)),
        (True, True),
        (None, None),
        ("x" * 300, "x" * 200 + "…"),
        ("\ud800", "?"),
        (b"\xff", "�"),
        ([[[1]]], [["[…]"]]),
        ({"a": {"b": {"c": 1}}}, {"a": {"b": "{…}"}}),
        (list(range(10)), [0, 1, 2, 3, 4, 5, 6, 7, "…"]),
        ({"\ud800": 1}, {"?": 1}),
    ],
)
def test_any_value_is_repeated_as_short_finite_json(value: Any, expected: Any):
    assert short_json(value) == expected
    json.dumps(short_json(value), allow_nan=False).encode()


@pytest.mark.parametrize(
    ("value", "allowed"),
    [
        (date(2026, 11, 29), "must be text, in quotes: without them YAML reads a date"),
        (True, "must be text, in quotes"),
        (7, "must be text, in quotes"),
        (["a"], "must be text"),
    ],
)
def test_what_was_not_read_as_text_says_so(value: object, allowed: str):
    allowed_by_pointer = {fault.pointer: fault.allowed for fault in faults_of(comparison_fields() | {"name": value})}
    assert allowed_by_pointer == {"/name": allowed}


def test_a_number_of_more_digits_than_python_writes_is_hexadecimal():
    assert short_json(-(16**5_000)) == "-0x1" + "0" * 196 + "…"
    shown = {fault.pointer: fault.text() for fault in faults_of({"seeds": 16**5_000, "name": 16**5_000})}
    assert "[0x1000" in shown["/seeds"]
    assert '"0x1000' in shown["/name"]


@pytest.mark.parametrize(
    ("given", "said"),
    [(0, "must be greater than or equal to 1, or 'auto'"), ("atuo", "must be a valid integer, or 'auto'")],
)
def test_what_fits_no_arm_of_a_union_is_told_what_each_allows(given: object, said: str) -> None:
    workload = {"model": "gpt2-tiny", "budget": {"steps": 2}, "execution": {"micro_batch_sequences": given}}
    with pytest.raises(ValidationError) as refused:
        RunSpec.model_validate({"workload": workload, "optimizer": {"name": "sgd", "lr": 0.1}, "seed": 1})
    (fault,) = validation_faults(refused.value, RunSpec)
    location = "/workload/execution/micro_batch_sequences"
    assert (fault.pointer, fault.value, fault.allowed) == (location, given, said)


@pytest.mark.parametrize(
    ("task", "pointer", "said"),
    [
        ("dpo", "/workload/task/kind", "must be one of pretrain, sft, rlhf, regression"),
        (
            {"kind": "rlfh"},
            "/workload/task/kind",
            "did you mean rlhf? It must be one of pretrain, sft, rlhf, regression",
        ),
        ({"reward": "brevity"}, "/workload/task/kind", "required"),
        (
            {"kind": "rlhf", "answer_tokens": 99},
            "/workload/task/answer_tokens",
            "must be below data.sequence_length_tokens = 64: the rest is the prompt's",
        ),
        ({"kind": "rlhf", "answer_tokens": 0}, "/workload/task/answer_tokens", "must be greater than or equal to 1"),
        ({"kind": "sft", "beta": 1}, "/workload/task/beta", "unknown field; known: kind"),
    ],
)
def test_a_fault_of_a_tagged_union_is_placed_without_the_tag(task: object, pointer: str, said: str) -> None:
    """pydantic puts the tag into the location; the user's document does not have it there."""
    data = {"data": {"sequence_length_tokens": 64}} if "rlhf" in str(task) else {}
    fields = {"workload": {"task": task, "model": "gpt2-tiny", "budget": {"steps": 2}, **data}}
    with pytest.raises(ValidationError) as refused:
        RunSpec.model_validate({**fields, "optimizer": {"name": "sgd", "lr": 0.1}, "seed": 1})
    (fault,) = validation_faults(refused.value, RunSpec)
    assert (fault.pointer, fault.allowed) == (pointer, said)
