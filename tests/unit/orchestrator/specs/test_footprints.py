"""A footprint is counted once; one that could not be is told, and tried again after a while."""

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from threading import Event

import pytest

from optim.catalog.lookup import VARIABLE
from orchestrator.errors import ConflictError
from orchestrator.specs import footprints as module
from orchestrator.specs.footprints import Footprints
from tests.factories.waiting import until
from worker.footprint.count import footprint
from worker.footprint.process import FootprintAnswer, FootprintQuestion
from worker.records.footprint import Footprint

QUESTION = FootprintQuestion(model="gpt2-tiny")
COUNTED = Footprint(
    model="gpt2-tiny", parameters=1, parameter_bytes=4, gradient_bytes=4, optimizers=(), baseline_bytes=8
)


def test_an_answer_is_kept_under_the_code_that_counted_it():
    """Each source is there: a name that no longer is would make every count fail."""
    packages = Path(module.__file__).parents[2]
    assert all((packages / source).exists() for source in module.SOURCES)
    assert len(module.code_digest()) == 64


def test_answers_about_own_optimizers_are_kept_under_their_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    package = tmp_path / "own_package"
    shutil.copytree(Path(__file__).parents[3] / "fakes" / "own_package", package)
    monkeypatch.syspath_prepend(str(package))
    for name in ("signum_entry", "signum_optimizer"):  # another test may have loaded the package from its own place
        monkeypatch.delitem(sys.modules, name, raising=False)
    digests = []
    for allowed in ("", "signum"):
        monkeypatch.setenv(VARIABLE, allowed)
        digests.append(module.code_digest.__wrapped__())
    source = package / "signum_optimizer.py"
    source.write_text(source.read_text() + "\n# changed\n")
    digests.append(module.code_digest.__wrapped__())
    assert len(set(digests)) == 3


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


def test_options_count_and_one_that_cannot_be_counted_loses_no_other(tmp_path: Path):
    tiny = FootprintQuestion(model="gpt2-tiny", optimizers=("adapm",), options={"rank_ratio": 0.2})
    bad = FootprintQuestion(model="gpt2-tiny", optimizers=("no-optimizer",))
    footprints = Footprints(tmp_path)
    assert [footprints.ask(question) for question in (bad, tiny)] == [None, None]
    assert footprints.count(tiny) == footprint("gpt2-tiny", ["adapm"], {"rank_ratio": 0.2})
    with pytest.raises(ConflictError, match="no-optimizer"):
        footprints.count(bad)
    assert Footprints(tmp_path).find(tiny) == footprints.find(tiny)


def test_what_is_asked_meanwhile_is_counted_together_and_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    counted: list[list[str]] = []
    go_on = Event()

    def count_slowly(questions: Sequence[FootprintQuestion]) -> list[FootprintAnswer]:
        counted.append([question.model for question in questions])
        assert go_on.wait(60)
        return [FootprintAnswer(footprint=COUNTED)] * len(questions)

    monkeypatch.setattr(module, "count_footprints", count_slowly)
    footprints = Footprints(tmp_path)
    first, *later_questions = (FootprintQuestion(model=name) for name in ("gpt2-tiny", "gpt2-nano", "gpt2-mini"))
    footprints.ask(first)
    until(lambda: counted, "the count has begun")
    for question in (first, *later_questions, *later_questions):
        assert footprints.ask(question) is None
    go_on.set()
    assert [footprints.count(question) for question in (first, *later_questions)] == [COUNTED] * 3
    assert counted == [["gpt2-tiny"], ["gpt2-nano", "gpt2-mini"]]
