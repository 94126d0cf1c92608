"""The lines of a log that somebody asks for: by a text in them, by their level. Pure.

A line without a level of its own, such as those of a traceback below an error, has that of the line before it.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

LONGEST_SEARCH = 200
"""Characters of a text that is searched."""
SEARCHED_BYTES = 2**22
"""Of a log so much is searched, from its end."""
SEARCHED_LINES = 100_000
"""And so many lines: of lines of a letter each there are two millions in four MiB, which would take seconds."""


class LogLevel(StrEnum):
    """The least level of the lines that are asked for."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"

    def rank(self) -> int:
        """The greater, the worse."""
        return _RANKS[self.value[0]]


@dataclass(frozen=True, kw_only=True)
class LogLine:
    """One line, with the level that it has."""

    text: str
    level: LogLevel


_RANKS = {"d": 0, "i": 0, "w": 1, "e": 2, "c": 2, "f": 2}
_LEVELS = {level.rank(): level for level in LogLevel}
_HEAD = re.compile(
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} (?P<ours>DEBUG|INFO|WARNING|ERROR|CRITICAL) "  # worker/reporting/log.py
    r"|(?P<torchs>[IWECF])\d{4} \d\d:\d\d:\d\d\."  # torch's own loggers, as glog writes
    r"|(?P<error>Traceback) \(most recent call last\):"
)


def find_lines(lines: Sequence[str], text: str = "", level: LogLevel = LogLevel.INFO) -> tuple[LogLine, ...]:
    """Of the last `SEARCHED_LINES` those that contain the text, upper and lower case alike, and are of that level or a
    worse one."""
    wanted = text.casefold()
    return tuple(
        line
        for line in _with_levels(lines[-SEARCHED_LINES:])
        if line.level.rank() >= level.rank() and (not wanted or wanted in line.text.casefold())
    )


def _with_levels(lines: Sequence[str]) -> Iterator[LogLine]:
    rank = 0
    for line in lines:
        if (head := _HEAD.match(line)) is not None:
            word = head["ours"] or head["torchs"] or "error"
            rank = _RANKS[word[0].lower()]
        yield LogLine(text=line, level=_LEVELS[rank])
