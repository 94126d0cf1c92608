"""A footprint that could not be counted is told, and tried again after a while."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from orchestrator.specs import footprints as module
from orchestrator.specs.footprints import FootprintRequest, Footprints
from tests.factories.waiting import until
from worker.footprint.process import FootprintAnswer, FootprintQuestion
from worker.records.footprint import Footprint

QUESTION = FootprintRequest(model="gpt2-tiny")
COUNTED = Footprint(
    model="gpt2-tiny", parameters=1, parameter_bytes=4, gradient_bytes=4, optimizers=(), baseline_bytes=8, notes=()
)


def test_an_answer_is_kept_under_the_code_that_counted_it():
    """Each source is there: a name that no longer is would make every count fail."""
    packages = Path(module.__file__).parents[2]
    assert all((packages / source).exists() for source in module.SOURCES)
    assert len(module.code_digest()) == 64


@pytest.mark.parametrize("fault", [subprocess.SubprocessError("killed"), FootprintAnswer(fault="killed")])
def test_a_failed_count_is_told_and_tried_again(
    fault: Exception | FootprintAnswer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    answers = iter([fault, FootprintAnswer(footprint=COUNTED)])

    def counted(questions: Sequence[FootprintQuestion]) -> list[FootprintAnswer]:
        assert questions == [FootprintQuestion(model="gpt2-tiny")]
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return [answer]

    monkeypatch.setattr(module, "count_footprints", counted)
    footprints = Footprints(tmp_path)
    assert footprints.ask(QUESTION) is None
    until(lambda: footprints.failure(QUESTION), "the count has failed")
    for _ in range(2):  # the second time is too soon
        assert footprints.failure(QUESTION) == "The count for gpt2-tiny came to nothing: killed"
        assert footprints.ask(QUESTION) is None
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.0)
    assert footprints.ask(QUESTION) is None
    until(lambda: footprints.find(QUESTION), "it is counted")
    assert footprints.failure(QUESTION) is None
    assert footprints.ask(QUESTION) == COUNTED
