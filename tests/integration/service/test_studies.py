"""The three cheapest studies for real: two that are computed, and one that trains, through the command line."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from api.cli import main
from orchestrator.studies.evidence import StudyScale
from orchestrator.studies.results import read_evidence

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def test_three_studies_end_with_verdicts_and_a_report(service_url: str, tmp_path: Path) -> None:
    """Counted, computed and trained; a second run finds the experiment and trains nothing."""

    def study(*words: object) -> str:
        return said(*words).stdout

    def said(*words: object) -> Result:
        result = CliRunner().invoke(main, ["study", *map(str, words), "--data", str(tmp_path)], catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result

    told = study("run", "memory-table", "debias-theorem", "gradient-sparsity", "--url", service_url)
    assert "memory-table, computed, own result: holds in part" in told
    assert "debias-theorem, computed, own result: holds in part" in told
    assert "gradient-sparsity: submitted" in told
    again = said("run", "gradient-sparsity", "--url", service_url, "--json")
    assert "gradient-sparsity: using" in again.stderr
    assert "3/3 runs, 100%" in again.stderr
    (answer,) = json.loads(again.stdout)
    assert (answer["study"], answer["scale"]) == ("gradient-sparsity", "tiny")
    assert answer["finding"]["finding"]["answer"]
    kept = read_evidence(tmp_path / "studies", "gradient-sparsity", StudyScale.TINY)
    assert kept is not None
    assert [run.ended for run in kept.parts[0].runs] == ["converged"] * 3
    assert set(kept.parts[0].runs[0].observed) >= {"embedding", "query", "attention output"}
    row = next(line for line in study("report").splitlines() if line.startswith("| [`gradient-sparsity`]"))
    assert "| cannot be said at this scale |" in row
