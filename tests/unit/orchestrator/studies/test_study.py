"""A study as a file, and its results as files beside it."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from orchestrator.studies.claims import ClaimVerdict
from orchestrator.studies.registry import SHIPPED, all_studies, names, register, study
from orchestrator.studies.reports import summary
from orchestrator.studies.result import ResultError, StudyResult, read_result, result_path, write_result
from orchestrator.studies.study import StudyError, StudyScale, read_study
from tests.factories.study_results import made_result

ENDS = {"adamw": (2.5, 2.52, 2.48), "lion": (2.502, 2.521, 2.481)}


def own_file(tmp_path: Path, **changes: Any) -> Path:
    """A study of one's own: Lion's, under another name."""
    fields = yaml.safe_load((SHIPPED / "lion" / "study.yaml").read_text()) | {"name": "lion-of-mine"} | changes
    path = tmp_path / "study.yaml"
    path.write_text(yaml.safe_dump(fields, sort_keys=False))
    return path


def test_a_study_of_ones_own_is_registered_once_and_stands_among_the_others(tmp_path: Path) -> None:
    own_study = read_study(own_file(tmp_path))
    folder = tmp_path / "studies"
    register(folder, own_study)
    register(folder, own_study)
    assert tuple(study.name for study in all_studies(folder)) == (*names(), "lion-of-mine")
    assert study("lion-of-mine", folder) == own_study
    claim = {"metric": "loss_difference", "candidate": "lion", "at_most": 0.5}
    with pytest.raises(StudyError, match="another study of that name"):
        register(folder, read_study(own_file(tmp_path, claims=[claim])))
    with pytest.raises(StudyError, match="comes with this version"):
        register(folder, study("lion"))


def test_a_claim_on_a_metric_that_nobody_measures_is_not_registered(tmp_path: Path) -> None:
    claim = {"metric": "los_difference", "candidate": "lion", "at_most": 0.0}
    with pytest.raises(StudyError, match=r"los_difference .* loss_difference, speed_up, state_share"):
        register(tmp_path / "studies", read_study(own_file(tmp_path, claims=[claim])))


def test_what_cannot_be_read_in_a_data_folder_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "study.yaml").write_text("name: [")
    assert all_studies(tmp_path) == all_studies()


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        (
            {"claims": [{"metric": "loss_difference", "candidate": "muon", "at_most": 0.0}]},
            "must be one of adamw, lion",
        ),
        (
            {"claims": [{"metric": "loss_difference", "candidate": "lion", "at_most": 0.0, "at_least": 0.1}]},
            "must be more than at_least",
        ),
        (
            {"claims": [{"metric": "speed_up", "candidate": "lion", "against": "adamw", "at_least": 1.0}]},
            "over its baseline",
        ),
        (
            {"claims": [{"metric": "loss_difference", "candidate": "lion", "part": "GPT-9", "at_most": 0.0}]},
            "/claims/0/part",
        ),
        (
            {"claims": [{"metric": "loss_difference", "candidate": "adamw", "against": "lion", "at_most": 0.0}]},
            "exchange candidate and against",
        ),
        ({"scales": {}}, "scales"),
        ({"scales": {"tiny": {"GPT-2": {"workload": {"model": "gpt-9"}}}}}, "gpt-9"),
        ({"conclusion": "it holds"}, "conclusion"),
    ],
)
def test_every_fault_of_a_file_is_named(tmp_path: Path, changes: dict[str, Any], fault: str) -> None:
    with pytest.raises(StudyError) as refused:
        read_study(own_file(tmp_path, **changes))
    assert fault in str(refused.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match=r"nothing\.yaml cannot be read"):
        read_study(tmp_path / "nothing.yaml")


def test_a_result_survives_its_file_with_a_line_for_each_run(tmp_path: Path) -> None:
    result = made_result(study("lion"), ENDS, state_shares={"lion": 0.5})
    path = result_path(tmp_path, "lion", StudyScale.TINY)
    write_result(path, result)
    assert read_result(path) == result
    runs = json.loads(path.read_text())["parts"][0]["runs"]
    assert len(runs["rows"]) == 2 * 10, "those that judge, and none that tuned"
    assert read_result(tmp_path / "nothing.json") is None
    path.write_text("{")
    with pytest.raises(ResultError, match=r"lion/result\.tiny\.json is not a result of a study"):
        read_result(path)


def test_an_own_result_that_lies_outside_of_the_published_one_says_so(tmp_path: Path) -> None:
    name, scale = "memory-table", StudyScale.TINY
    published = read_result(SHIPPED / "memory_table" / "result.tiny.json")
    assert published is not None
    path = result_path(tmp_path, name, scale)
    write_result(path, published)
    report = summary(study(name), tmp_path).scale(scale)
    assert (report.own, report.deviations) == (report.published, ())
    changed = {key: value * (1.1 if "adapm-mini" in key else 1.0) for key, value in published.computed.items()}
    write_result(path, published.model_copy(update={"computed": changed}))
    deviations = summary(study(name), tmp_path).scale(scale).deviations
    assert len(deviations) == 6, "four figures in bytes and two shares"
    assert all("adapm-mini" in sentence for sentence in deviations)


def test_the_largest_scale_with_a_verdict_speaks_for_a_study(tmp_path: Path) -> None:
    subject = study("lion")
    tiny, middle = (made_result(subject, ENDS, scale=scale) for scale in (StudyScale.TINY, StudyScale.MIDDLE))
    assert summary(subject.model_copy(update={"name": "not-run"}), tmp_path).best() is None
    write_result(result_path(tmp_path, "lion", StudyScale.TINY), tiny)
    write_result(result_path(tmp_path, "lion", StudyScale.MIDDLE), middle)
    write_result(result_path(tmp_path, "lion", StudyScale.PAPER), StudyResult(study="lion", scale=StudyScale.PAPER))
    best = summary(subject, tmp_path).best()
    assert best is not None and best[0] is StudyScale.MIDDLE
    paper = summary(subject, tmp_path).scale(StudyScale.PAPER).best()
    assert paper is not None and paper.answer is ClaimVerdict.MISSING
