"""Numbers as people read them: one function per quantity, used by templates and figures alike.

Unknown is always an em dash. Sizes are decimal (1 MB = 1e6 bytes), minus is the minus sign.
"""

import json
import math
import re
from collections.abc import Callable
from datetime import UTC, datetime

from pydantic import JsonValue

from orchestrator.analysis import verdicts
from orchestrator.records import QueuePosition

LOSS_IN_NATS = "loss, nats per token"
"""The title of a language task's loss axis."""

UNKNOWN = "—"
MINUS = "\N{MINUS SIGN}"


def loss(value: float | None) -> str:
    """Return a loss in nats per token: `2.2921`; very large ones as `1.2e+05`; minus a reward as `−0.4121`."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    return sentence(f"{value:.4f}" if abs(value) < 1000 else f"{value:.1e}")


def difference(value: float | None) -> str:
    """Return a difference with its sign: `−0.0290`, `+0.0012`; `+0.00002` where four decimals would call it zero."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    if abs(value) >= 1000 or value == 0:
        return ("+" if value > 0 else MINUS if value < 0 else "±") + loss(abs(value))
    return sentence(verdicts.signed_text(value))


def interval(low: float | None, high: float | None, text: Callable[[float], str]) -> str:
    """Return `[0.31, 0.35]`; a missing bound is `any`, and without both the text is empty."""
    if low is None and high is None:
        return ""
    return f"[{', '.join('any' if bound is None else text(bound) for bound in (low, high))}]"


def p_value(value: float | None) -> str:
    """Return `p = 0.034` or `p < 0.001`; empty if it is undefined."""
    return "" if value is None else verdicts.p_text(value)


def size(value: float | None) -> str:
    """Return bytes as `6.69 MB`."""
    if value is None:
        return UNKNOWN
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= factor:
            return f"{_three_digits(value / factor)} {unit}"
    return f"{value:.0f} B"


def percent(share: float | None) -> str:
    """Return a share of one: `54 %`, `6.9 %`, `0 %`."""
    if share is None:
        return UNKNOWN
    return f"{100 * share:.1f} %" if 0 < share < 0.1 else f"{100 * share:.0f} %"


def seconds(value: float | None) -> str:
    """Return a short time: `38.2 ms`, `1.24 s`."""
    if value is None:
        return UNKNOWN
    return f"{_three_digits(value)} s" if value >= 1 else f"{_three_digits(1000 * value)} ms"


def duration(value: float | None) -> str:
    """Return a long time in its two largest units: `42 s`, `4 min 05 s`, `1 h 03 min`, `2 d 4 h`."""
    if value is None:
        return UNKNOWN
    whole = max(0, round(value))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    if whole < 86_400:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 86_400} d {whole % 86_400 // 3600} h"


def device_time(hours: float | None) -> str:
    """Return device-hours as `26 s`, `11 min 24 s` or, from an hour on, `12.3 h`."""
    if hours is None:
        return UNKNOWN
    return duration(3600 * hours) if hours < 1 else f"{_three_digits(hours)} h"


def count(value: float | None) -> str:
    """Return a whole number with thousands separators."""
    return UNKNOWN if value is None else f"{value:,.0f}"


def compact(value: float | None) -> str:
    """Return a large number in three digits: `24.6 k`, `1.05 M`."""
    if value is None:
        return UNKNOWN
    for unit, factor in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= factor:
            return f"{_three_digits(value / factor)} {unit}"
    return f"{value:.0f}"


def flops(value: float | None) -> str:
    """Return floating-point operations a second as `12.3 GFLOP/s`."""
    if value is None:
        return UNKNOWN
    for unit, factor in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6)):
        if value >= factor:
            return f"{_three_digits(value / factor)} {unit}FLOP/s"
    return f"{value:.0f} FLOP/s"


def rate(value: float | None) -> str:
    """Return a learning rate in at most four digits: `0.002`, `1e-05`, `0.001946`."""
    return UNKNOWN if value is None else f"{value:.4g}"


def short_number(value: float | None) -> str:
    """Return a number with four significant digits."""
    return UNKNOWN if value is None or not math.isfinite(value) else sentence(f"{value:.4g}")


def option_value(value: bool | int | float | str | None, digits: int = 6) -> str:
    """Return an option's value as specifications write it: `true`, `0.05`, `null`."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:.{digits}g}" if isinstance(value, float) else str(value)


def json_value(value: JsonValue) -> str:
    """Return a value of a document: texts as they are, the rest as JSON, numbers with all of their digits."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def age(timestamp: float | None, now: float) -> str:
    """Return the age: `just now`, `3 min ago`, `2 days ago`."""
    if timestamp is None:
        return UNKNOWN
    elapsed = max(0.0, now - timestamp)
    for unit, factor in (("day", 86_400), ("h", 3600), ("min", 60)):
        if elapsed >= factor:
            number = int(elapsed // factor)
            return f"{number} {unit}{'s' if unit == 'day' and number > 1 else ''} ago"
    return "just now"


def moment(value: float | None) -> str:
    """Return a point in time, in UTC to the second."""
    return UNKNOWN if value is None else f"{datetime.fromtimestamp(value, UTC):%Y-%m-%d %H:%M:%S} UTC"


def iso(value: float) -> str:
    """Return a point in time as a <time> element's `datetime`."""
    return datetime.fromtimestamp(value, UTC).isoformat(timespec="seconds")


def device_time_title(device: str | None) -> str:
    """Return the heading of device times, with the kind of device: an hour of a CPU is none of a GPU."""
    if device is None:
        return "Device time"
    return "Device time (cpu)" if device == "cpu" else "Device time (gpu)"


def sentence(text: str) -> str:
    """Return a sentence of the service with the minus sign in its numbers: `-0.0247 to -0.0114` reads as hyphens."""
    return _NEGATIVE.sub(MINUS, text)


def page_sentence(text: str) -> str:
    """Return the same for a page: `≤` is one sign, and no line ends within `n = 5`, `p < 0.001`, `lr 0.004`, `± 0.02`
    or `95 %`."""
    return _TIED.sub("\N{NO-BREAK SPACE}", sentence(text).replace("<=", "≤").replace(">=", "≥"))


_TIED = re.compile(r"(?<=\b[np]) (?=[=<] )|(?<=\b[np].[=<]) (?=\d)|(?<=\blr) (?=\d)|(?<=\d) (?=[%±])|(?<=±) (?=\d)")
_NEGATIVE = re.compile(r"(?<![\w.-])-(?=\d)")


def _three_digits(value: float) -> str:
    if value >= 100:
        return f"{value:.0f}"
    if value >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if value >= 0.1 else f"{value:.2g}"


def queue_position(position: QueuePosition) -> str:
    """Return `3 of 120, starts in about 4 min`, with an estimate if there is one, and the quota that it waits for."""
    text = f"{count(position.position)} of {count(position.waiting)}"
    if position.waits_for is not None:
        return f"{text}, {position.waits_for}"
    if position.starts_in_seconds is None:
        return text
    return f"{text}, starts in about {duration(position.starts_in_seconds)}"
