"""`adapm-bench study`: lists, shows and reports from files, without any service."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from api.cli import main
from orchestrator.studies.registry import names
from orchestrator.studies.result import StudyResult, result_path, write_result
from orchestrator.studies.study import StudyScale
from tests.architecture.tree import REPOSITORY

STATES = {"llama-340m/adamw/float32": 1e9, "llama-340m/adapm/float32": 9e8}
"""Bytes that no machine would count: AdaPM keeps nine tenths of AdamW's state."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A data folder with one result."""
    result = StudyResult(study="memory-table", scale=StudyScale.TINY, computed=STATES)
    write_result(result_path(tmp_path / "studies", "memory-table", StudyScale.TINY), result)
    return tmp_path


def cli(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["study", *map(str, arguments)], catch_exceptions=False)


def test_ls_lists_every_study(folder: Path) -> None:
    output = cli("ls", "--data", folder).stdout
    assert all(name in output for name in names())
    listed = json.loads(cli("ls", "--json", "--data", folder).stdout)
    assert [study["name"] for study in listed] == list(names())


def test_ls_shows_one_study_with_claim_cost_and_figures(folder: Path) -> None:
    output = cli("ls", "memory-table", "--data", folder).stdout
    assert "table 2" in output
    assert "own result" in output
    fields = json.loads(cli("ls", "block-partition", "--json", "--data", folder).stdout)
    tiny = fields["scales"][0]
    assert (tiny["scale"], tiny["runs"]) == ("tiny", 4 * (8 * 3 + 10)), "eight trials on three seeds, then ten seeds"
    (experiment,) = tiny["experiments"]
    assert experiment["key"].startswith("study-")
    assert experiment["spec"]["kind"] == "comparison"
    refused = cli("ls", "nothing")
    assert refused.exit_code == 2
    assert "study 'nothing'" in refused.stderr


def test_the_report_lists_every_study_and_has_a_section_of_each_result(folder: Path) -> None:
    path = folder / "report.md"
    assert cli("report", "-o", path, "--data", folder).exit_code == 0
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    listed = re.findall(r"^\| \[[^|]+\]\(#([a-z0-9-]+)\)", text, flags=re.MULTILINE)
    missing_line = "".join(line for line in lines if line.startswith("No result yet: "))
    assert sorted(listed + re.findall("`([a-z0-9-]+)`", missing_line)) == sorted(names())
    assert [line.removeprefix("## ") for line in lines if line.startswith("## ")] == listed != []
    assert cli("report", "--data", folder).stdout == text
    assert {line.replace(r"\|", "").count("|") for line in lines if line.startswith("|")} == {4, 5}
    refused = cli("report", "-o", folder / "nowhere" / "report.md", "--data", folder)
    assert refused.exit_code == 2
    assert "choose another file" in refused.stderr


def test_run_needs_names_or_all_and_not_both() -> None:
    assert cli("run").exit_code == 2
    assert cli("run", "solver", "--all").exit_code == 2
    assert cli("run", "nothing").exit_code == 2
    refused = cli("run", "gpu-hours", "--scale", "middle")
    assert refused.exit_code == 2
    assert "tiny, paper" in refused.stderr


def test_a_file_of_ones_own_is_read_before_anything_runs(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("name: mine")
    refused = cli("run", path, "--data", tmp_path)
    assert refused.exit_code == 2
    assert "mine.yaml" in refused.stderr and "/claims: required" in refused.stderr


def test_the_published_report_is_that_of_the_published_results(tmp_path: Path) -> None:
    """Whoever changes a study or its results writes the report anew: study report --data EMPTY -o."""
    document = REPOSITORY / "docs" / "reproduction.md"
    assert cli("report", "--data", tmp_path).stdout == document.read_text(encoding="utf-8")
