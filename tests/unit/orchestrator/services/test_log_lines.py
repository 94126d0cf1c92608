"""Search in a log: by text in any case, by level, with the lines below an error."""

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.services.log_lines import SEARCHED_LINES, LogLevel, find_lines

LOG = """\
Loading weights
2026-11-24 10:00:00,123 INFO worker.run: training gpt2-tiny
W1124 10:00:01.545000 10581 torch/utils/_pytree.py:630] natively supported
2026-11-24 10:00:02,000 WARNING worker.reporting: the service is away
  it answered 503
Traceback (most recent call last):
  File "run.py", line 3, in run
ValueError: Straße
2026-11-24 10:00:03,000 INFO worker.run: going on
""".splitlines()


def numbers(text: str = "", level: LogLevel = LogLevel.INFO) -> list[int]:
    return [LOG.index(line.text) for line in find_lines(LOG, text, level)]


def test_a_line_has_the_level_of_its_record() -> None:
    assert numbers() == list(range(9))
    assert numbers(level=LogLevel.WARNING) == [2, 3, 4, 5, 6, 7]
    assert numbers(level=LogLevel.ERROR) == [5, 6, 7]
    assert [line.level.value for line in find_lines(LOG)] == ["info"] * 2 + ["warning"] * 3 + ["error"] * 3 + ["info"]


def test_a_text_is_found_in_any_case_and_means_itself() -> None:
    assert numbers("GPT2-Tiny") == [1]
    assert numbers("STRASSE") == [7]
    assert numbers(".*") == []
    assert numbers("run", LogLevel.ERROR) == [6]


def test_of_very_many_lines_the_last_are_searched() -> None:
    assert len(find_lines(["a"] * (SEARCHED_LINES + 7))) == SEARCHED_LINES
    assert find_lines(["found", *["a"] * SEARCHED_LINES], "found") == ()


@given(st.lists(st.text(max_size=30)), st.text(max_size=5), st.sampled_from(LogLevel))
def test_what_is_found_is_of_the_log_in_its_order(lines: list[str], text: str, level: LogLevel) -> None:
    matches = [line.text for line in find_lines(lines, text, level)]
    remaining_lines = iter(lines)
    assert all(line in remaining_lines for line in matches)
    assert all(text.casefold() in line.casefold() for line in matches)
