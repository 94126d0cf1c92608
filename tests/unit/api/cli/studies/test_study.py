"""`adapm-bench study`: lists, shows and reports from files, without any service."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from api.cli import main
from orchestrator.studies.evidence import Evidence, StudyScale
from orchestrator.studies.registry import names
from orchestrator.studies.results import write_evidence
from tests.architecture.tree import REPOSITORY


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A data folder with one result that no machine would give."""
    evidence = Evidence(study="memory-table", scale=StudyScale.TINY, computed={"llama-340m/adamw/float32": 1.0})
    write_evidence(tmp_path / "studies", evidence)
    return tmp_path


def cli(*words: object) -> Result:
    return CliRunner().invoke(main, ["study", *map(str, words)], catch_exceptions=False)


def test_ls_lists_every_study(folder: Path) -> None:
    told = cli("ls", "--data", folder).stdout
    assert all(name in told for name in names())
    listed = json.loads(cli("ls", "--json", "--data", folder).stdout)
    assert [each["name"] for each in listed] == list(names())


def test_show_says_claim_cost_and_finding(folder: Path) -> None:
    told = cli("show", "memory-table", "--data", folder).stdout
    assert "Claim (table 2, figure 1b)" in told
    assert "no result yet" in told
    fields = json.loads(cli("show", "block-partition", "--json", "--data", folder).stdout)
    (experiment,) = fields["scales"]["tiny"]["experiments"]
    assert fields["scales"]["tiny"]["runs"] == 4 * (8 * 3 + 5), "eight trials on three seeds, then five seeds"
    assert experiment["key"].startswith("study-")
    assert experiment["spec"]["kind"] == "comparison"
    refused = cli("show", "nothing")
    assert refused.exit_code == 2
    assert "there is no study 'nothing'" in refused.stderr


def test_the_report_has_every_study_and_says_what_is_missing(folder: Path) -> None:
    out = folder / "report.md"
    assert cli("report", "-o", out, "--data", folder).exit_code == 0
    text = out.read_text(encoding="utf-8")
    assert [line.removeprefix("## ") for line in text.splitlines() if line.startswith("## ")] == [
        *names(),
        "Withdrawn",
    ]
    assert cli("report", "--data", folder).stdout == text
    assert all(line.count("|") in (4, 6, 7) for line in text.splitlines() if line.startswith("|"))
    refused = cli("report", "-o", folder / "nowhere" / "report.md", "--data", folder)
    assert refused.exit_code == 2
    assert "choose another file" in refused.stderr


def test_run_needs_names_or_all_and_not_both() -> None:
    assert cli("run").exit_code == 2
    assert cli("run", "solver", "--all").exit_code == 2
    assert cli("run", "nothing").exit_code == 2
    refused = cli("run", "gpu-hours", "--scale", "middle")
    assert refused.exit_code == 2
    assert "gpu-hours has no middle scale; it has tiny, paper" in refused.stderr


def test_a_broken_file_is_named(folder: Path) -> None:
    (folder / "studies" / "memory-table.tiny.json").write_text("{")
    assert "memory-table.tiny.json is no result of a study" in cli("show", "memory-table", "--data", folder).stdout
    assert cli("ls", "--data", folder).exit_code == 0


def test_the_published_report_is_that_of_the_published_results(tmp_path: Path) -> None:
    """Whoever changes a study or its results writes the report anew: study report --results EMPTY -o."""
    document = REPOSITORY / "docs" / "reproduction.md"
    assert cli("report", "--results", tmp_path).stdout == document.read_text(encoding="utf-8")
