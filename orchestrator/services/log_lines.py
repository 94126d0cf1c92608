"""The lines of a log that somebody asks for: by a text in them, by their level. Pure.

A line without a level of its own, such as those of a traceback below an error, has that of the line before it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

LONGEST_SEARCH = 200
"""Characters of a text that is searched."""
SEARCHED_BYTES = 2**22
"""The bytes of a log that are searched, from its end."""
SEARCHED_LINES = 100_000
"""And so many lines: of lines of a letter each there are two millions in four MiB, which would take seconds."""


class LogLevel(StrEnum):
    """The least level of the lines that are asked for, the worst last."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, kw_only=True)
class LogLine:
    """A line with its level."""

    text: str
    level: LogLevel


_LEVELS = {"I": 0, "D": 0, "W": 1, "E": 2, "C": 2, "F": 2, "T": 2}
"""The severity of a line, by the first letter of its level, or of its traceback."""
_HEAD = re.compile(
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} (?P<ours>DEBUG|INFO|WARNING|ERROR|CRITICAL) "  # worker/reporting/log.py
    r"|(?P<torchs>[IWECF])\d{4} \d\d:\d\d:\d\d\."  # torch's own loggers, as glog writes
    r"|(?P<error>Traceback) \(most recent call last\):"
)


def find_lines(lines: Sequence[str], text: str = "", level: LogLevel = LogLevel.INFO) -> tuple[LogLine, ...]:
    """Return those of the last `SEARCHED_LINES` that contain the text, upper and lower case alike, and are of that
    level or a worse one."""
    wanted, levels, of_line, matching = text.casefold(), list(LogLevel), LogLevel.INFO, list[LogLine]()
    for line in lines[-SEARCHED_LINES:]:
        if head := _HEAD.match(line):
            of_line = levels[_LEVELS[(head["ours"] or head["torchs"] or head["error"])[0]]]
        if levels.index(of_line) >= levels.index(level) and (not wanted or wanted in line.casefold()):
            matching.append(LogLine(text=line, level=of_line))
    return tuple(matching)
