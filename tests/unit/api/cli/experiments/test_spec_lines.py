"""Every fault of a specification is told with the line and the column where it stands, in YAML, JSON and TOML."""

from pathlib import Path

import pytest
import typer

from api.cli.experiments.specs import read_spec
from orchestrator.specs.faults import Fault

YAML = """\
# a comment
name: x
workload:
  model: nothing
  budget: {steps: 0}
candidates:
  - optimizer: adamw
    learning_rates: [0.1,
                     -1]
"""
JSON = """\
{"name": "x",
\t"workload": {"model": "nothing",
\t\t"budget": {"steps": 0}},
"candidates": [
{"optimizer": 1,
"learning_rates": [0.1,
-1]}]}
"""
TOML = '''\
name = """
two = "lines"
"""
# a comment
[workload]
model = "nothing"
  budget.steps = 0
[[candidates]]
optimizer = "adamw"
learning_rates = [0.1]
[[candidates]]
learning_rates = [
  0.1,
  -1,
]
[candidates.options]
"a/b" = 1
'''


def refused(folder: Path, name: str, text: str, pointer: str, capsys: pytest.CaptureFixture[str]) -> str:
    """The line that a fault there is told in, without the folder."""
    path = folder / name
    path.write_text(text)
    with pytest.raises(typer.Exit) as leaving:
        read_spec(path).refuse("1 fault:", [Fault(pointer=pointer, value=0, allowed="no")])
    assert leaving.value.exit_code == 2
    headline, line = capsys.readouterr().err.splitlines()
    assert headline == "1 fault:"
    return line.strip().removeprefix(f"{folder}/").removesuffix(f": {pointer or 'the whole body'}: 0: no")


@pytest.mark.parametrize(
    ("name", "text", "pointer", "place"),
    [
        ("a.yaml", YAML, "/candidates/0/learning_rates/1", "9:22"),
        ("a.yaml", YAML, "/candidates/0/options/beta1", "7:5"),  # what is not there: what would hold it
        ("a.yaml", YAML, "", "2:1"),
        ("a.json", JSON, "/candidates/0/learning_rates/1", "7:1"),
        ("a.toml", TOML, "/workload/budget/steps", "7:3"),
        ("a.toml", TOML, "/candidates/1/learning_rates/1", "12:1"),  # of a long value its beginning
    ],
)
def test_a_fault_is_told_with_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, text: str, pointer: str, place: str
):
    assert refused(tmp_path, name, text, pointer, capsys) == f"{name}:{place}"


def test_the_three_languages_say_the_same(tmp_path: Path):
    texts = {
        "a.yaml": "name: x\nseeds: [1, 2]\nworkload: {budget: {steps: 2}}\n",
        "a.json": '{"name": "x",\n\t"seeds": [1, 2], "workload": {"budget": {"steps": 2}}}',
        "a.toml": 'name = "x"\nseeds = [1, 2]\n[workload.budget]\nsteps = 2\n',
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    assert [read_spec(tmp_path / name).fields for name in texts] == [
        {"name": "x", "seeds": [1, 2], "workload": {"budget": {"steps": 2}}}
    ] * 3


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.json", '{"a": 1,\n}', ":2:1: "),
        ("a.json", '{\n\t"a": [{"b": 1},\n\t{"b": 2, "b": "\\ud83d"}]}', ":3:11: "),
        ("a.json", '{"a": NaN}', " is not JSON"),
        ("a.json", '{"a":' * 100_000, " is nested too deeply"),
        ("a.json", "[1]", " holds a list"),
        ("a.toml", "a = 1\nb = = 2", ":2:5: "),
        ("a.toml", "a = 1\na = 2", ":2: "),
        ("a.toml", "a = 1\nb = [1,\n", ":2: "),
    ],
)
def test_what_is_no_such_text_is_refused_with_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, text: str, words: str
):
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(typer.Exit) as leaving:
        read_spec(path)
    assert leaving.value.exit_code == 2
    assert capsys.readouterr().err.startswith(f"{path}{words}")
