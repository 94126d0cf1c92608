"""Specification files at the command line: where a fault stands, and clear words for what is not a file of one."""

from pathlib import Path

import pytest
import typer

from api.cli.experiments.specs import read_spec
from orchestrator.specs.faults import Fault


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.yaml", "seeds:\n  - 1\n"),
        ("a.json", '{"seeds":\n  [1]}'),
    ],
)
def test_a_fault_is_told_with_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, text: str
) -> None:
    """In each language."""
    path, position = tmp_path / name, {"a.yaml": ":2:5", "a.json": ":2:4"}[name]
    path.write_text(text)
    assert read_spec(path).fields == {"seeds": [1]}
    with pytest.raises(typer.Exit) as leaving:
        read_spec(path).refuse("1 fault:", [Fault(pointer="/seeds/0", value=1, allowed="no")])
    assert leaving.value.exit_code == 2
    assert capsys.readouterr().err.splitlines() == ["1 fault:", f"  {path}{position}: /seeds/0: 1: no"]


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
