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
        ("-1e-3", -0.001),
        ("3", 3),
        ("null", None),
        ("true", True),
        ("'2e-3'", "2e-3"),
        ("e3", "e3"),
    ],
)
def test_scalars_mean_what_they_look_like(tmp_path: Path, text: str, value: object):
    assert spec(tmp_path, f"lr: {text}") == {"lr": value}
    assert type(spec(tmp_path, f"lr: {text}")["lr"]) is type(value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "holds nothing"),
        ("[1, 2]", "holds a list"),
        ("a: [1", "spec.yaml:1:6: "),
        ("a: 1\nb:\n\tc: 2", "with spaces"),
        ("a: 1\nb: \0", "spec.yaml:2:4: U+0000"),
        ("a: 1\na: 2", "'a' is given twice"),
        ("a: !!python/object/apply:os.getcwd []", "YAML"),
        ("a: &a [1, {b: *a}]", "holds itself"),
        ("2020-01-01: 1", "must be text"),
        ("a: 2026-13-45", "'2026-13-45'"),
        ("a: 0x" + "f" * 5_000, "as int"),
        ("a: !!bool maybe", "'maybe'"),
        ("a: !!float '" + "1:" * 300 + "1'", "as float"),
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
