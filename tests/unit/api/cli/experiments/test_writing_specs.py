"""`init` writes specifications that are valid; `schema` takes what the service takes, and knows the names; what is no
file of a specification is told so."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import typer
from typer.testing import CliRunner, Result

from api.cli import main
from api.cli.experiments.specs import read_spec
from optim import catalog
from orchestrator.specs.schema import SPECS, schema
from orchestrator.specs.text import parse
from tests.architecture.tree import REPOSITORY
from worker.catalog import presets

DOCS = REPOSITORY / "docs"
EXAMPLES = sorted(DOCS.glob("example*.yaml"))


def cli(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(word) for word in arguments], catch_exceptions=False)


def kind_of(fields: dict[str, Any]) -> str:
    return str(fields.get("kind", "run" if "optimizer" in fields else "comparison"))


def faults(kind: str, fields: dict[str, Any]) -> list[str]:
    """Return the schema's faults of that kind."""
    validator = jsonschema.Draft202012Validator(schema(kind))
    return ["/".join(map(str, error.absolute_path)) for error in validator.iter_errors(fields)]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("kind", SPECS)
def test_what_init_writes_is_valid_and_commented(folder: Path, kind: str):
    result = cli("init", kind)
    verb = "run" if kind == "run" else "validate"
    assert result.stdout == f"wrote {kind}.yaml\nnext: adapm-bench {verb} {kind}.yaml\n"
    text = (folder / f"{kind}.yaml").read_text()
    fields = parse(text, kind)
    SPECS[kind].model_validate(fields)
    assert kind_of(fields) == kind
    assert text.startswith("# ") and text.count("#") >= 3


def test_init_leaves_a_file_alone_unless_told(folder: Path):
    path = folder / "mine.yaml"
    path.write_text("mine")
    refused = cli("init", "run", "-o", path)
    assert (refused.exit_code, refused.stdout, path.read_text()) == (2, "", "mine")
    assert "--force overwrites it" in refused.stderr
    assert json.loads(cli("init", "run", "-o", path, "--force", "--json").stdout) == {"kind": "run", "file": str(path)}
    assert path.read_text() == cli("init", "run", "-o", "-").stdout == (DOCS / "example-run.yaml").read_text()
    conflict = cli("init", "run", "-o", "-", "--json")
    assert (conflict.exit_code, conflict.stdout, "--out -" in conflict.stderr) == (2, "", True)


@pytest.mark.parametrize("out", ["none/a.yaml", "a.json"])
def test_init_says_why_it_cannot_write(folder: Path, out: str):
    result = cli("init", "--out", out)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"cannot write {out}: ")


@pytest.mark.parametrize("kind", SPECS)
def test_schema_prints_a_schema(kind: str):
    printed_schema = json.loads(cli("init", kind, "--schema", "--out", "-").stdout)
    jsonschema.Draft202012Validator.check_schema(printed_schema)
    assert printed_schema == schema(kind)
    assert printed_schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert printed_schema["$defs"]["Workload"]["properties"]["precision"]["description"]
    assert printed_schema["$defs"]["Workload"]["properties"]["model"]["enum"][:-1] == list(presets.names())


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_schema_takes_every_example(path: Path):
    fields = parse(path.read_text(), path.name)
    kind = kind_of(fields)
    SPECS[kind].model_validate(fields)
    assert faults(kind, fields) == []


def test_the_schema_takes_a_search_without_a_space_and_knows_its_optimizers():
    searched = {"kind": "sweep", "name": "a search", "workload": {"model": "gpt2-tiny", "budget": {"steps": 9}}}
    assert faults("sweep", searched | {"candidates": [{"optimizer": "adamw"}]}) == []
    assert faults("sweep", searched | {"candidates": [{"optimizer": "adamv"}]}) == ["candidates/0/optimizer"]


def test_the_schema_takes_what_users_write_and_not_their_slips():
    fields = parse((DOCS / "example.yaml").read_text(), "example.yaml")
    workload = fields["workload"] | {"task": "sft", "data": {"dataset": "own/mine", "tokenizer": "bpe-512"}}
    assert faults("comparison", fields | {"workload": workload}) == []
    assert faults("comparison", fields | {"workload": workload | {"task": {"kind": "rlhf", "answer_tokens": 4}}}) == []
    assert faults("comparison", fields | {"workload": workload | {"task": "sftt"}}) == ["workload/task"]
    assert faults("comparison", fields | {"workload": workload | {"model": "gpt3"}}) == ["workload/model"]
    assert faults("comparison", fields | {"workload": workload | {"data": {"tokenizer": "x"}}}) == [
        "workload/data/tokenizer"
    ]
    assert faults("comparison", fields | {"candidates": [{"optimizer": "adan", "learning_rates": [1]}]}) == [
        "candidates/0/optimizer"
    ]
    assert faults("comparison", fields | {"sedes": [1]}) == [""]
    assert schema("run")["$defs"]["OptimizerSpec"]["properties"]["name"]["anyOf"][0]["enum"] == list(catalog.names())


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "adapm-bench init"),
        (b"\xff\xfe\x00", "line 1, is not UTF-8"),
        (b"a: [1", "spec.yaml:1:6: "),
        (b"seeds: [" + b"1, " * 400_000 + b"2]", "1,000,000 characters"),
    ],
)
def test_what_is_no_file_of_a_specification_is_refused_with_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes | None, words: str
) -> None:
    path = tmp_path / "spec.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(typer.Exit) as leaving:
        read_spec(path)
    assert leaving.value.exit_code == 2
    assert words in capsys.readouterr().err
