"""Plain text logs: the lines of a training that match a pattern, whose named groups are the step and the metrics.

A file is a run; one that begins again after its last step has several. Its folder is its candidate. Where neither a
line nor a name says its seed, the runs of a folder are numbered by the last change of their files. Files that no
pattern matches, such as the script beside them, are not logs.
"""

import gzip
import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from api.client.own_runs import LARGEST_STEP
from api.imports.mapping import SEED, parse_name
from api.imports.source import (
    NULL,
    STEP_NAMES,
    ReadRequest,
    SourceError,
    SourcePoint,
    SourceRun,
    as_number,
    find_files,
    parse_number,
    reading,
)
from orchestrator.external_runs import ExternalState
from orchestrator.specs.differences import flat_fields

LONGEST_LINE = 10_000
"""Characters of a line that are looked at: a pattern takes time that grows with them."""
NUMBER = r"[-+]?(?:\d[\d.]*(?:[eE][-+]?\d+)?|[nN]a[nN]|[iI]nf(?:inity)?)"
COLOUR = re.compile(r"\x1b\[[\d;]*m")
THOUSANDS = re.compile(r"[-+]?\d{1,3}(?:(?:,\d{3})+\.\d*|(?:,\d{3}){2,})")
"""A number with commas that cannot be decimal ones."""
STEPS = (STEP_NAMES, ("last_step",))
"""Groups that are the step, and the one that the training will end at."""
SETTINGS = ("candidate", "seed")
"""Groups that say something of the whole run."""
LONGEST_CANDIDATE = 60
"""Characters, as `CandidateName` has it."""


@dataclass(frozen=True, kw_only=True)
class LogFormat:
    """The lines of a training script."""

    lines: tuple[re.Pattern[str], ...]
    pairs: re.Pattern[str] | None = None
    """Finds further metrics in such a line: a name, a number, a unit."""


def _format(*lines: str, pairs: str | None = None) -> LogFormat:
    compiled = tuple(re.compile(line.replace("NUMBER", NUMBER)) for line in lines)
    return LogFormat(lines=compiled, pairs=re.compile(pairs.replace("NUMBER", NUMBER)) if pairs else None)


FORMATS: Mapping[str, LogFormat] = {
    # karpathy/nanoGPT, train.py
    "nanogpt": _format(
        r"\bstep (?P<step>\d+): train loss (?P<train_loss>NUMBER), val loss (?P<val_loss>NUMBER)",
        r"\biter (?P<step>\d+): loss (?P<loss>NUMBER), time (?P<time_ms>NUMBER)ms(?:, mfu (?P<mfu>NUMBER)%)?",
    ),
    # KellerJordan/modded-nanogpt, all records since November 2024; its other lines say the time alone
    "modded-nanogpt": _format(
        r"^step:(?P<step>\d+)/(?P<last_step>\d+) (?=.*loss:)",
        r"^(?:Using )?seed[=:] ?(?P<seed>\d+)$",
        pairs=r"(?<!\S)(\w+):(NUMBER)(ms|s|)(?!\S)",
    ),
    # karpathy/llm.c, llmc/logger.h; the first records of modded-nanogpt
    "llm.c": _format(
        r"^s:(?P<step>\d+) (?:tel:(?P<val_loss>NUMBER)|eval:(?P<eval_accuracy>NUMBER)|trl:(?P<train_loss>NUMBER))"
        r"(?: lr:(?P<lr>NUMBER))?(?: norm:(?P<grad_norm>NUMBER))?$",
    ),
    # transformers, ProgressCallback and PrinterCallback; JSON lines
    "dicts": _format(r"""^\{['"].*\}$""", pairs=r"""['"]([^'"]+)['"]: ?['"]?(NUMBER)(?=['",} ])()"""),
}


@dataclass(eq=False)
class _Training:
    """A training in a file."""

    name: str
    place: str
    """Its file, and its number there."""
    settings: Mapping[str, str]
    points: list[SourcePoint] = field(default_factory=list)
    not_numbers: set[str] = field(default_factory=set)
    last_step: float | None = None
    """The last step that the training named itself."""

    @property
    def values(self) -> set[tuple[int, str, float]]:
        return {(point.step, name, value) for point in self.points for name, value in point.metrics.items()}

    @property
    def has_ended(self) -> bool:
        return self.last_step is not None and self.points[-1].step >= self.last_step


def read(request: ReadRequest) -> Iterator[SourceRun]:
    """Yield the runs of all files, folder by folder."""
    formats = tuple(FORMATS.values()) if request.pattern is None else (_chosen_format(request.pattern),)
    folders: dict[Path, list[Path]] = {}
    for path, way in find_files(request.places, "*"):
        folders.setdefault(way, []).append(path)
    has_runs = False
    for way, paths in folders.items():
        trainings = list[_Training]()
        # A log that is added later leaves the numbers of those before it as they are.
        for path in sorted(paths, key=lambda path: (path.stat().st_mtime, path)):
            with reading(path, "text"):
                trainings += _trainings(path, way, formats)
        has_runs = has_runs or bool(trainings)
        # Of one folder alone, names of files tell candidates apart, if anything does.
        yield from _runs(trainings, {"group" if len(folders) == 1 else "folder": _candidate(way)})
    if not has_runs:
        raise SourceError(
            f"no line in {', '.join(request.places)} matches {request.pattern or ', '.join(FORMATS)} with a number for "
            "the step and for a metric; say what such a line looks like: "
            r"--pattern 'step (?P<step>\d+) .* loss (?P<val_loss>\S+)'"
        )


def _runs(trainings: Sequence[_Training], facts: Mapping[str, str]) -> Iterator[SourceRun]:
    """Yield the runs of one folder, without those of which the longest log of the same seed has all values."""
    by_seed: dict[str | None, list[_Training]] = {}
    for training in trainings:
        by_seed.setdefault(training.settings.get("seed"), []).append(training)
    unused_seeds = (seed for seed in map(str, count(1)) if seed not in by_seed)
    ends = Counter(training.points[-1].step for training in trainings)
    copied = set[str | None]()
    for seed, logs in by_seed.items():
        longest = max(logs, key=lambda training: len(training.points))
        if seed is not None and len(logs) > 1:
            all_values = longest.values
            by_seed[seed] = [log for log in logs if log is longest or not log.values <= all_values]
            copied |= {seed} if len(by_seed[seed]) < len(logs) else set()
    distinct_logs = {log for logs in by_seed.values() for log in logs}
    for training in (log for log in trainings if log in distinct_logs):
        seed, notes = training.settings.get("seed"), []
        if seed is None:
            notes.append("nothing says its seed: the logs of its folder are numbered by their last change")
        elif seed in copied:
            notes.append("another log of the same seed has no other values, and is left out")
        if training.last_step is None:
            notes.append("no line says what the last step is, so the run counts as finished")
        end = training.points[-1]
        yield SourceRun(
            name=training.name,
            numbered=training.place if seed is None else None,
            config={**training.settings, "seed": seed if seed is not None else next(unused_seeds)},
            facts={**facts},
            sessions=(training.points,),
            not_numbers=training.not_numbers,
            # Where several of a folder end early at the same step, that was on purpose.
            state=ExternalState.FINISHED
            if training.last_step is None or training.has_ended or ends[end.step] > 1
            else ExternalState.RUNNING,
            notes=tuple(notes),
        )


def _chosen_format(pattern: str) -> LogFormat:
    if pattern in FORMATS:
        return FORMATS[pattern]
    try:
        expression = re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise SourceError(
            f"--pattern {pattern!r} is none of {', '.join(FORMATS)}, and no regular expression: {error}"
        ) from error
    if not expression.groupindex.keys() - {*SETTINGS, *STEPS[0], *STEPS[1]}:
        raise SourceError(
            f"--pattern {pattern!r} names no metric; name a group for the step and one for each metric, as in "
            r"'step (?P<step>\d+) .* loss (?P<val_loss>[\d.]+)'"
        )
    return LogFormat(lines=(expression,))


def _trainings(path: Path, way: Path, formats: Sequence[LogFormat]) -> list[_Training]:
    """Return the trainings of a file. Its first line that matches chooses the format."""
    name, modified_at = (way / path.stem).as_posix(), path.stat().st_mtime
    in_name = parse_name(name).get("name.seed")
    seed = {} if in_name is None else {"seed": in_name}
    ahead: dict[str, str] = {}
    newest: dict[tuple[str | None, ...], _Training] = {}
    trainings = [training := _Training(name, f"{path.name}/1", seed)]
    step = math.nan
    for line in _lines(path):
        for log_format in formats:
            match = next(filter(None, (expression.search(line) for expression in log_format.lines)), None)
            if match is not None:
                break
        else:
            continue
        groups: dict[str, object] = {name: text for name, text in match.groupdict().items() if text is not None}
        if log_format.pairs is not None:
            groups |= _pairs(line, log_format.pairs)
        ahead |= {name: str(value) for name in SETTINGS if (value := groups.pop(name, None)) is not None}
        step_value, last_step = (next((groups.pop(name) for name in names if name in groups), None) for names in STEPS)
        numbers = {name: _number(value) for name, value in groups.items()}
        training.not_numbers |= {name for name, value in numbers.items() if value is None}
        metrics = {name: value for name, value in numbers.items() if value is not None}
        # Lines of a Trainer have no step: thousandths of an epoch are the same for all that train as long. Lines with
        # neither belong to the step that a line above them says.
        if step_value is not None:
            line_step = _number(str(step_value).replace(",", ""))
            if line_step is None and log_format.pairs is None:
                raise SourceError(f"{path}: {step_value!r} is not a step; narrow the pattern, which matches {line}")
            step = math.nan if line_step is None else line_step
        elif "epoch" in metrics:
            step = 1000 * metrics["epoch"]
        if not (0 <= step <= LARGEST_STEP and metrics):
            continue
        formats = (log_format,)
        begins_again = training.has_ended and step < training.points[-1].step
        settings = {**(seed if begins_again else training.settings), **ahead}
        key = tuple(map(settings.get, SETTINGS))
        if begins_again or (training.points and settings != training.settings):
            # Lines of several may alternate, as of seeds that are trained side by side.
            training = newest.get(key, training)
            if begins_again or key not in newest:
                number = len(trainings) + 1
                trainings.append(training := _Training(f"{name}/{number}", f"{path.name}/{number}", settings))
        newest[key], training.settings = training, settings
        ahead.clear()
        if last_step is not None:
            training.last_step = _number(str(last_step).replace(",", ""))
        training.points.append(SourcePoint(at=modified_at, step=round(step), metrics=metrics))
    return [training for training in trainings if training.points]


def _pairs(line: str, pairs: re.Pattern[str]) -> Iterator[tuple[str, object]]:
    """Yield the names and values in a line: of JSON, also those of mappings in one another; else by the pattern."""
    try:
        yield from flat_fields(json.loads(line))
    except (ValueError, RecursionError):
        for name, text, unit in pairs.findall(line):
            yield f"{name}_{unit}" if unit else name, text


def _number(value: object) -> float | None:
    """Return a value of a line as a number, without what stands behind it; None if it is none, as with a comma that may
    be decimal."""
    if value is None:
        return NULL
    if not isinstance(value, str):
        return as_number(value)
    text = value.strip(" ,;:|()[]%")
    return as_number(parse_number(text.replace(",", "") if THOUSANDS.fullmatch(text) else text))


def _lines(path: Path) -> Iterator[str]:
    """Yield the lines of a file of text, packed by gzip or not, without colours; none of another. Progress bars end
    theirs by a carriage return."""
    with path.open("rb") as file:
        is_packed = file.read(2) == b"\x1f\x8b"
    unpack = gzip.open if is_packed else open
    with unpack(path, "rb") as file:
        head = file.read(LONGEST_LINE)
    is_wide = head[:2] in (b"\xff\xfe", b"\xfe\xff")
    if b"\x00" in head and not is_wide:
        return
    with unpack(path, "rt", encoding="utf-16" if is_wide else "utf-8", errors="replace") as lines:
        while line := lines.readline(LONGEST_LINE):
            yield COLOUR.sub("", line).strip()


def _candidate(way: Path) -> str:
    """Return the folder, without what says seed and rate, and as much of it as a candidate's name may have."""
    parts = [part for part in way.parts if not SEED.fullmatch(part)] or list(way.parts)
    parts = [parse_name(part).get("name.candidate", part) for part in parts]
    while len(parts) > 1 and len("/".join(parts)) > LONGEST_CANDIDATE:
        del parts[0]
    return "/".join(parts)[-LONGEST_CANDIDATE:]
