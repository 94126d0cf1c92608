"""Footprints counted in a process of their own are those that this one counts; one that fails loses no other."""

from worker.footprint import process
from worker.footprint.process import FootprintQuestion, answer

count_footprints = process.count_footprints
"""The real one, taken before `tests/conftest.py` replaces it."""


def test_a_process_answers_each_question() -> None:
    """In the order of the questions, with options and ranks, and with the fault of the one that cannot be counted."""
    questions = [
        FootprintQuestion(model="gpt2-nano", optimizers=("adamw",)),
        FootprintQuestion(model="gpt2-nothing"),
        FootprintQuestion(model="gpt2-nano", optimizers=("adapm",), options={"rank_ratio": 0.5}, ranks=2),
    ]
    replies = count_footprints(questions)
    assert replies == [answer(question) for question in questions]
    assert [reply.footprint is None for reply in replies] == [False, True, False]
    assert [reply.footprint and reply.footprint.ranks for reply in replies] == [1, None, 2]
    assert "gpt2-nothing" in (replies[1].fault or "")
