"""Specification files at the command line: where a fault stands, and clear words for what is not a file of one."""

from pathlib import Path

import pytest
import typer

from api.cli.experiments.specs import read_spec


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
