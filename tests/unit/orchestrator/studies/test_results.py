"""A re-run is held against what was published: silence within the intervals, a sentence outside."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from api.cli import main
from orchestrator.studies.evidence import Evidence, StudyScale
from orchestrator.studies.findings import ClaimVerdict
from orchestrator.studies.registry import study
from orchestrator.studies.results import (
    EvidenceError,
    StoredFinding,
    best,
    compare_findings,
    deviations,
    evidence_path,
    read_evidence,
    stored_findings,
    write_evidence,
)
from tests.factories.comparison import Outcome
from tests.factories.evidence import DIVERGED, made_evidence

ENDS = {
    "adamw": (2.5, 2.52, 2.48, 2.51, 2.49),
    "adam-mini": (2.5, 2.51, 2.49, 2.51, 2.48),
    "adapm-mini": (2.502, 2.521, 2.481, 2.512, 2.491),
}


def evidence(adapm_mini: Sequence[Outcome] = ENDS["adapm-mini"]) -> Evidence:
    ends = {**ENDS, "adapm-mini": adapm_mini}
    return made_evidence(study("adapm-mini"), ends, state_shares={"adapm-mini": 0.05})


def test_the_same_result_deviates_nowhere() -> None:
    assert deviations(evidence(), evidence()) == ()


def test_what_lies_outside_or_diverged_is_named() -> None:
    (sentence,) = deviations(evidence(adapm_mini=(3.0, 3.03, 2.98, 3.01, 3.0)), evidence())
    assert sentence.startswith("GPT-2, AdaPM-mini: 3.0040, outside of the published interval 2.")
    lost = deviations(evidence(adapm_mini=(DIVERGED,)), evidence())
    assert "5 runs without a trained model, published 0" in lost[0]
    assert "no finite loss" in lost[1]


def test_another_specification_is_not_compared() -> None:
    other = evidence()
    changed = other.parts[0].model_copy(update={"spec_hash": "0" * 64})
    (sentence,) = deviations(evidence(), other.model_copy(update={"parts": (changed,)}))
    assert "not comparable" in sentence


def test_computed_figures_are_compared_relatively_and_by_their_version() -> None:
    def computed(value: float, by: str = "1") -> Evidence:
        return Evidence(study="memory-table", scale=StudyScale.TINY, computed={"x": value}, computed_by=by)

    assert deviations(computed(1.0), computed(1.0 + 1e-6)) == ()
    assert deviations(computed(2.0), computed(1.0)) == ("x: 2, published 1.",)
    assert "has changed" in deviations(computed(1.0, "2"), computed(1.0))[0]


def test_evidence_survives_its_file_and_a_broken_file_is_named(tmp_path: Path) -> None:
    found = evidence(adapm_mini=(DIVERGED, 2.5, 2.5))
    path = write_evidence(tmp_path, found)
    assert read_evidence(tmp_path, "adapm-mini", StudyScale.TINY) == found
    assert [each.name for each in tmp_path.iterdir()] == [path.name]
    assert read_evidence(tmp_path, "adapm-mini", StudyScale.PAPER) is None
    assert stored_findings(study("adapm-mini"), tmp_path)[0].published is False
    evidence_path(tmp_path, "adapm-mini", StudyScale.TINY).write_text("{")
    with pytest.raises(EvidenceError, match="run the study again"):
        read_evidence(tmp_path, "adapm-mini", StudyScale.TINY)


@pytest.mark.parametrize(
    "runs",
    [
        {"columns": ["candidate", "lr", "seed", "ended"], "rows": [["adamw", 0.1, 1]]},
        {"columns": ["candidate", "lr", "seed", "ended"], "rows": [7]},
        {"columns": [["candidate"]], "rows": [["adamw"]]},
        {"columns": ["candidate"]},
    ],
)
def test_a_broken_table_of_runs_is_a_broken_file(tmp_path: Path, runs: dict[str, object]) -> None:
    content = evidence().model_dump(mode="json")
    content["parts"][0]["runs"] = runs
    evidence_path(tmp_path, "adapm-mini", StudyScale.TINY).write_text(json.dumps(content))
    with pytest.raises(EvidenceError, match="run the study again"):
        read_evidence(tmp_path, "adapm-mini", StudyScale.TINY)


def test_evidence_names_no_host() -> None:
    """Published files say what machine it was, not whose."""
    assert "here" not in evidence().model_dump_json()


def test_a_figure_outside_of_its_interval_and_another_verdict_are_named() -> None:
    """What the judge says is compared as well as the means: probes, laws and effects have nothing else."""
    one = study("adapm-mini")
    same = compare_findings(one, evidence(), evidence())
    assert same.own == same.published and same.deviations == ()
    apart = compare_findings(one, evidence(adapm_mini=(3.0, 3.03, 2.98, 3.01, 3.0)), evidence()).deviations
    assert "The verdict on what was run is does not hold, published: holds." in apart
    assert any(
        each.startswith("AdaPM-mini, loss minus AdamW's: 0.504, outside of the published interval ") for each in apart
    )
    other = evidence()
    changed = other.model_copy(update={"parts": (other.parts[0].model_copy(update={"spec_hash": "0" * 64}),)})
    (sentence,) = compare_findings(one, evidence(adapm_mini=(3.0, 3.03, 2.98, 3.01, 3.0)), changed).deviations
    assert "not comparable" in sentence
    assert compare_findings(one, evidence(), None).deviations == ()


def test_a_re_run_says_whether_it_agrees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the command line, beside the published result."""
    published = tmp_path / "published"
    monkeypatch.setattr("orchestrator.studies.results.PUBLISHED", published)
    write_evidence(published, evidence())

    def told(losses: Sequence[Outcome]) -> str:
        write_evidence(tmp_path / "studies", evidence(losses))
        return CliRunner().invoke(main, ["study", "show", "adapm-mini", "--data", str(tmp_path)]).stdout

    assert "All of it lies within the published intervals." in told(ENDS["adapm-mini"])
    deviating = told((3.0, 3.03, 2.98, 3.01, 3.0))
    assert "own result, deviates" in deviating and "Deviates: The verdict on what was run" in deviating


def test_a_withdrawn_result_has_its_reason_and_no_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever its runs would be judged: in the list, on its own, in the report; and no re-run is held against it."""
    published, reason = tmp_path / "published", "The baseline was not tuned."
    monkeypatch.setattr("orchestrator.studies.results.PUBLISHED", published)
    write_evidence(published, evidence().model_copy(update={"withdrawn": reason}))
    (stored,) = stored_findings(study("adapm-mini"), tmp_path / "studies")
    assert (stored.finding.answer, stored.finding.measured) == (ClaimVerdict.WITHDRAWN, ClaimVerdict.WITHDRAWN)
    assert (stored.finding.sentence, stored.finding.measures) == (reason, ())

    def told(*words: str) -> str:
        return " ".join(CliRunner().invoke(main, ["study", *words, "--data", str(tmp_path)]).stdout.split())

    assert "adapm-mini, tiny scale, published: withdrawn The baseline was not tuned." in told("show", "adapm-mini")
    assert "withdrawn" in told("ls")
    assert "**Tiny scale: withdrawn.** The baseline was not tuned." in told("report")
    assert "| tiny | withdrawn | The baseline was not tuned. |" in told("report")
    write_evidence(tmp_path / "studies", evidence(adapm_mini=(3.0, 3.03, 2.98, 3.01, 3.0)))
    again = told("show", "adapm-mini")
    assert "own result" in again and "does not hold" in again
    assert "deviates" not in again and "within the published intervals" not in again


def test_a_verdict_that_stands_is_told_before_a_withdrawn_one() -> None:
    found = compare_findings(study("adapm-mini"), evidence(), evidence().model_copy(update={"withdrawn": "Wrong."}))
    assert found.own is not None and found.published is not None
    tiny, paper = (
        StoredFinding(scale=scale, published=True, finding=each)
        for scale, each in ((StudyScale.TINY, found.own), (StudyScale.PAPER, found.published))
    )
    assert best((tiny, paper)) == tiny
    assert best((paper,)) == paper
    assert best(()) is None
