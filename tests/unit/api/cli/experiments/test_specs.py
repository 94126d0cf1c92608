"""Specification files: YAML with numbers as people write them, JSON, and clear words for everything else."""

from pathlib import Path
from typing import Any

import pytest
import typer

from api.cli.experiments.specs import read_spec


def spec(folder: Path, text: str) -> dict[str, Any]:
    path = folder / "spec.yaml"
    path.write_text(text)
    return read_spec(path).fields


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2e-3", 0.002),
        ("2.5e-3", 0.0025),
        ("1E6", 1e6),
        ("-1e-3", -0.001),
        ("0.002", 0.002),
        ("3", 3),
        ("null", None),
        ("true", True),
        ("'2e-3'", "2e-3"),
        ("e3", "e3"),
        ("1e", "1e"),
    ],
)
def test_scalars_mean_what_they_look_like(tmp_path: Path, text: str, value: object):
    assert spec(tmp_path, f"lr: {text}") == {"lr": value}
    assert type(spec(tmp_path, f"lr: {text}")["lr"]) is type(value)


def test_json_is_read_too(tmp_path: Path):
    assert spec(tmp_path, '{"name": "x", "seeds": [1, 2]}') == {"name": "x", "seeds": [1, 2]}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "holds nothing"),
        ("[1, 2]", "holds a list"),
        ("just words", "holds plain text"),
        ("a: [1", "spec.yaml:1:6: neither YAML nor JSON"),
        ("a: 1\nb:\n\tc: 2", "spec.yaml:3:1: neither YAML nor JSON"),
        ("a: 1\nb:\n\tc: 2", "indent with spaces, not with tabs"),
        ("a: 1\nb: \0", "spec.yaml:2:4: U+0000 is a control character; take it out, or save the file as UTF-8"),
        ("a: 1\na: 2", "'a' is given twice"),
        ("a: !!python/object/apply:os.getcwd []", "neither YAML nor JSON"),
        ("a: &a [1, {b: *a}]", "stands for what holds itself"),
        ("a: &a {<<: *a}", "stands for what holds itself"),
        ("2020-01-01: 1", "the name of a field must be text"),
        ("a: 2026-13-45", "spec.yaml:1:4: neither YAML nor JSON: '2026-13-45' cannot be read as timestamp; quote it"),
        ("a: 0x" + "f" * 5_000, "cannot be read as int"),
        ("a: " + "9" * 5_000, "cannot be read as int"),
        ("a: !!int ''", "'' cannot be read as int"),
        ("a: !!bool maybe", "'maybe' cannot be read as bool"),
        ("a: !!timestamp never", "'never' cannot be read as timestamp"),
        ("a: !!float '" + "1:" * 300 + "1'", "cannot be read as float"),
        ("[" * 3000, "nested too deeply"),
    ],
)
def test_bad_files_are_refused_with_a_sentence(tmp_path: Path, capsys, text: str, words: str):
    with pytest.raises(typer.Exit) as leaving:
        spec(tmp_path, text)
    assert leaving.value.exit_code == 2
    assert words in capsys.readouterr().err


def test_a_file_that_is_not_there_is_named(tmp_path: Path, capsys):
    with pytest.raises(typer.Exit):
        read_spec(tmp_path / "none.yaml")
    assert "adapm-bench init" in capsys.readouterr().err


def test_binary_files_are_refused(tmp_path: Path, capsys):
    path = tmp_path / "spec.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(typer.Exit):
        read_spec(path)
    assert "line 1, is not UTF-8" in capsys.readouterr().err


def test_a_merge_key_may_stand_beside_what_it_merges(tmp_path: Path):
    text = "base: &base {steps: 1}\nother:\n  <<: *base\n  warmup: 2\n"
    assert spec(tmp_path, text)["other"] == {"steps": 1, "warmup": 2}


def test_a_bomb_of_aliases_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Nine levels of nine references each would be 387 million values."""
    lines = ["a0: &a0 [1]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10))]
    with pytest.raises(typer.Exit):
        spec(tmp_path, "\n".join(lines))
    assert "50,000 values" in capsys.readouterr().err


def test_a_file_longer_than_any_specification_is_not_parsed(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(typer.Exit):
        spec(tmp_path, "seeds: [" + "1, " * 400_000 + "2]")
    assert "1,000,000 characters" in capsys.readouterr().err
