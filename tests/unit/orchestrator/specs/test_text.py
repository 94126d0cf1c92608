"""A shortened specification of any kind, task and option reads back to an equal one."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.kinds.registry import validate_spec
from orchestrator.specs.text import SpecTextError, brief, parse, to_yaml
from tests.architecture.tree import REPOSITORY
from tests.factories.playing import DEMO

DOCS = REPOSITORY / "docs"
EXPERIMENTS = ("example.yaml", "example-search.yaml", "example-scaling.yaml", "example-sweep.yaml")
RUNS = ("example-run.yaml", "example-sft.yaml", "example-rlhf.yaml", "example-regression.yaml")


def fields_in(name: str) -> dict[str, Any]:
    return parse((DOCS / name).read_text(), name)


def as_experiment(run: dict[str, Any], kind: str) -> dict[str, Any]:
    """A comparison, or a sweep, of what the specification of one run trains."""
    optimizer = run["optimizer"]
    fixed = {"optimizer": optimizer["name"], "options": optimizer.get("options", {})}
    if kind == "sweep":
        return {"kind": kind, "name": "swept", "workload": run["workload"], "candidates": [fixed], "trials": 3}
    candidate = fixed | {"learning_rates": [optimizer["lr"]]}
    return {"kind": kind, "name": "one", "workload": run["workload"], "candidates": [candidate], "seeds": [run["seed"]]}


def through_yaml(spec: Any) -> Any:
    return validate_spec(parse(to_yaml(brief(spec)), "the text"))


def test_what_holds_anyway_is_left_out():
    workload = brief(validate_spec(as_experiment(fields_in("example-regression.yaml"), "comparison")))["workload"]
    assert workload == {
        "task": {"kind": "regression", "b": 1.2},
        "model": "linear",
        "budget": {"steps": 4000},
    }
    assert brief(DEMO).keys() == {"kind", "name", "workload", "candidates", "seeds", "baseline"}


def test_a_value_that_is_usual_elsewhere_stays_where_its_task_has_another():
    """Gradients are clipped at 1 by default, but not in a regression."""
    fields = as_experiment(fields_in("example-regression.yaml"), "comparison")
    fields["workload"]["clip_grad_norm"] = 1.0
    assert brief(validate_spec(fields))["workload"]["clip_grad_norm"] == 1.0


def test_a_scaling_experiment_leaves_model_and_steps_to_its_sizes():
    workload = brief(validate_spec(fields_in("example-scaling.yaml")))["workload"]
    assert "model" not in workload
    assert "steps" not in workload.get("budget", {})


WORKLOADS = st.fixed_dictionaries(
    {},
    optional={
        "clip_grad_norm": st.sampled_from([None, 1.0, 0.5]),
        "evaluation": st.fixed_dictionaries({"every_steps": st.sampled_from([10, 100]), "sequences": st.just(64)}),
        "schedule": st.fixed_dictionaries({"final_lr_ratio": st.sampled_from([0.0, 0.1]), "shape": st.just("cosine")}),
        "execution": st.fixed_dictionaries({"micro_batch_sequences": st.sampled_from([None, 1, "auto"])}),
    },
)
WHOLE = st.fixed_dictionaries(
    {},
    optional={
        "priority": st.sampled_from([-3, 0, 5]),
        "max_run_seconds": st.sampled_from([None, 60.0]),
        "resources": st.fixed_dictionaries({"cpus": st.sampled_from([1, 2])}),
    },
)


@given(name=st.sampled_from(EXPERIMENTS + RUNS), workload=WORKLOADS, whole=WHOLE, sweep=st.booleans())
def test_any_values_come_back_equal(name: str, workload: dict[str, Any], whole: dict[str, Any], sweep: bool):
    fields = fields_in(name)
    if name in RUNS:
        fields = as_experiment(fields, "sweep" if sweep else "comparison")
    spec = validate_spec(fields | whole | {"workload": fields["workload"] | workload})
    assert through_yaml(spec) == spec
    assert through_yaml(spec).content_hash() == spec.content_hash()


@pytest.mark.parametrize(
    ("written", "read"),
    [
        *(
            ("2e-3", 0.002),
            ("-1e-3", -0.001),
            ("e3", "e3"),
            ("1.5E+3", 1500.0),
            (".5", 0.5),
            ("300_000", 300_000),
            ("0x1F", 31),
            ("-0", 0),
        ),
        *(("010", "010"), ("1:30", "1:30"), ("0b11", "0b11"), ("1:30.5", "1:30.5"), ("'10'", "10")),
    ],
)
def test_numbers_are_those_of_yaml_1_2(written: str, read: object) -> None:
    """YAML 1.1 reads `010` as 8 and `1:30` as 90: here they are text, and no number of anything."""
    value = parse(f"a: {written}", "x.yaml")["a"]
    assert value == read and type(value) is type(read)


@pytest.mark.parametrize("key", ["[a]", "{a: 1}"])
def test_a_name_of_a_field_is_text(key: str) -> None:
    with pytest.raises(SpecTextError, match=r"x.yaml:2:\d+: .*the name of a field must be text"):
        parse(f"b: 1\n{key}: 2", "x.yaml")


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.yaml", "", "holds nothing"),
        ("a.yaml", "[1, 2]", "holds a list"),
        ("a.yaml", "a: [1", "a.yaml:1:6: "),
        ("a.yaml", "a: 1\nb:\n\tc: 2", "with spaces"),
        ("a.yaml", "a: 1\na: 2", "'a' is given twice"),
        ("a.yaml", "a: !!python/object/apply:os.getcwd []", "YAML"),
        ("a.yaml", "a: &a [1, {b: *a}]", "holds itself"),
        ("a.yaml", "2020-01-01: 1", "must be text"),
        ("a.yaml", "a: 2026-13-45", "'2026-13-45'"),
        ("a.yaml", "a: 0x" + "f" * 5_000, "as int"),
        ("a.yaml", "a: !!bool maybe", "'maybe'"),
        ("a.yaml", "a: !!float '" + "1:" * 300 + "1'", "as float"),
        ("a.yaml", "[" * 3000, "nested too deeply"),
        ("a.json", '{"a": 1,\n]', "a.json:2:1: "),
        ("a.json", '{\n\t"a": [{"b": 1},\n\t{"b": 2, "b": "\\ud83d"}]}', "'b' is given twice"),
        ("a.json", '{"a": NaN}', " is not JSON"),
        ("a.json", '{"a":' * 100_000, " is nested too deeply"),
    ],
)
def test_what_is_no_specification_is_refused_with_its_place(name: str, text: str, words: str) -> None:
    with pytest.raises(SpecTextError) as raised:
        parse(text, name)
    assert words in str(raised.value)


@pytest.mark.parametrize("character", ["\0", "\x07", "\x1b", "\x7f", "\x9f", "\ufffe"])
def test_a_control_character_is_named_with_its_place_and_the_way_out(character: str) -> None:
    with pytest.raises(SpecTextError) as raised:
        parse(f'kind = 1\r\nname: "a{character}b"\n', "mine")
    message = str(raised.value)
    kind = "no character of any script" if character == "\ufffe" else "a control character"
    assert message.startswith(f"mine:2:9: U+{ord(character):04X} is {kind}; take it out")
    assert ("save the file as UTF-8" in message) == (character == "\0")


def test_tabs_and_letters_of_every_script_are_no_control_characters() -> None:
    assert parse('name: "a\tä😀\u2028"', "mine") == {"name": "a\tä😀\u2028"}
