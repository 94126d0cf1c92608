"""Runs as readers return them: with all fields of the source, under the source's own names."""

import math
import pickle
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import IO, Any

from orchestrator.external_runs import SYSTEM, ExternalState
from orchestrator.sessions import SourcePoint as SourcePoint

CANDIDATE_NAMES = ("candidate", "optimizer", "optim", "opt", "optimizer_name", "optimizer.name", "optimizer.type",
                   "optimizer._target_", "optimizer.class_path", "method", "algorithm")  # fmt: skip
RATE_NAMES = ("lr", "learning_rate", "peak_lr", "max_lr", "base_lr", "optimizer.lr",
              "optimizer.init_args.lr")  # fmt: skip
SEED_NAMES = ("seed", "random_seed", "manual_seed", "rng_seed")
STEP_NAMES = ("global_step", "step", "_step", "steps", "iteration", "iter", "it", "update",
              "training_iteration")  # fmt: skip
"""What settings, columns and groups of a pattern are called in which a run says each, the first that there is."""


class SourceError(Exception):
    """A source cannot be read, or says too little; the message says which, and what to do, in one line."""

    def __init__(self, message: str) -> None:
        """Names of a source may be long, and have lines of their own."""
        super().__init__(" ".join(message.split())[:2_000])


class _Null(float):
    def __reduce__(self) -> str:
        return "NULL"  # pickled by its name: what comes back from a shelf is this very object


NULL = _Null("nan")
"""A metric that was logged without a value, as writers of strict JSON do with what is not finite. This very object: of
a name that never has another value, or has one later, nothing was logged."""


@dataclass(frozen=True, kw_only=True)
class ReadRequest:
    """A request to a reader."""

    places: Sequence[str]
    """Files, folders, or an address."""
    fields: Collection[str] = ()
    """The fields of the source that a mapping asks for, without metrics."""
    step: str | None = None
    """The field or metric that a mapping asks for as the step."""
    pattern: str | None = None
    """The pattern of text lines: a regular expression, or the name of a known script's."""
    only: Mapping[str, str] = field(default_factory=dict)
    """The fields that a wanted run has; runs without them are left out at the latest by the import."""
    empty: list[Path] = field(default_factory=list)
    """Files that say nothing of a run yet, which the reader adds: their processes were killed before they began."""


@dataclass(kw_only=True)
class SourceRun:
    """A run, as its source has it; a reader adds to it."""

    source_id: str | None = None
    """The source's own identity of the run, the same on every machine; None if it has none."""
    name: str
    """The run's name for people; if the source is a folder of folders, the path to the run's own one."""
    numbered: str | None = None
    """The part of the identity that replaces the seed if the reader numbered the seeds, which may change."""
    config: dict[str, Any] = field(default_factory=dict)
    """The configuration."""
    facts: dict[str, Any] = field(default_factory=dict)
    """Other fields of the source: project, group, notes, host, summary."""
    tags: tuple[str, ...] = ()
    sessions: Sequence[list[SourcePoint]] = ()
    """The points of each process that trained the run, in its order; `join_sessions` makes one series of them."""
    counts_steps: bool = False
    """Whether the tool numbers the steps itself if the training gives none."""
    axes: dict[str, str] = field(default_factory=dict)
    """The metric over which the owner has others drawn, by a metric's name or a pattern of names."""
    state: ExternalState = ExternalState.FINISHED
    started_at: float = 0.0
    """0 and `ended_at` 0: when the first and the last of its points were logged."""
    ended_at: float = 0.0
    step_field: str | None = None
    """The field that its steps are from, where the reader chose one that is not among the metrics."""
    not_numbers: set[str] = field(default_factory=set)
    """Names of logged values that are not numbers, and are left out."""
    notes: tuple[str, ...] = ()
    """Changes by the reader that the owner may want to know, in a sentence each."""

    @property
    def points(self) -> Iterator[SourcePoint]:
        """Return all logged points, session after session."""
        return chain.from_iterable(self.sessions)

    @cached_property
    def metrics(self) -> frozenset[str]:
        """Return the names of all metrics that have a value; those of the machine have no step of the training, and
        are left out."""
        logged = (pair for point in self.points for pair in point.metrics.items())
        return frozenset(name for name, value in logged if value is not NULL and not name.startswith(SYSTEM))

    @cached_property
    def sparse_metrics(self) -> frozenset[str]:
        """Return the names that have a number behind a `NULL`: there it says that nothing was taken."""
        without_value, sparse = set[str](), set[str]()
        for point in self.points:
            for name, value in point.metrics.items():
                if value is NULL:
                    without_value.add(name)
                elif name in without_value:
                    sparse.add(name)
        return frozenset(sparse)

    def add(self, later: "SourceRun") -> None:
        """Take what another process said of the same run."""
        self.sessions = [*self.sessions, *later.sessions]
        self.tags = tuple(dict.fromkeys((*self.tags, *later.tags)))
        self.config |= later.config
        self.facts |= later.facts
        self.axes |= later.axes
        self.not_numbers |= later.not_numbers
        self.state, self.ended_at = later.state, later.ended_at


def find_files(places: Iterable[str], *patterns: str) -> Iterator[tuple[Path, Path]]:
    """Yield the files of such names below each place, each with the path of its folder relative to the place; a place
    may be a file itself. Hidden files are none of a run: notebooks and systems keep copies in them."""
    for root in map(Path, places):
        if root.is_dir():
            paths = sorted({path for pattern in patterns for path in root.rglob(pattern) if path.is_file()})
            paths = [path for path in paths if not any(part[0] == "." for part in path.relative_to(root).parts)]
        elif root.is_file():
            paths = [root]
        else:
            raise SourceError(f"{root} {'is neither a file nor a folder' if root.exists() else 'does not exist'}")
        if not paths:
            raise SourceError(f"{root} has no {' or '.join(patterns)}")
        for path in paths:
            way = path.parent.relative_to(root) if root.is_dir() else Path()
            yield path, Path(path.parent.resolve().name) if way == Path() else way


@contextmanager
def reading(source: object, format_name: str) -> Iterator[None]:
    """Turn whatever a damaged or hostile file raises into one sentence with its name."""
    try:
        yield
    except SourceError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise SourceError(f"{source} cannot be read as {format_name}: {reason}") from error


@contextmanager
def copied_database(path: Path) -> Iterator[Path]:
    """Yield a temporary copy of an SQLite file: a reader of the file itself may write beside it, or migrate it."""
    with path.open("rb") as file:
        if file.read(15) != b"SQLite format 3":
            raise SourceError(f"{path} is not a database of SQLite")
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy.db"
        for suffix in ("", "-wal"):
            if Path(f"{path}{suffix}").is_file():
                shutil.copyfile(f"{path}{suffix}", f"{copy}{suffix}")
        with closing(sqlite3.connect(copy)) as database:
            computed = database.execute(
                "select name from sqlite_master where type = 'view' "
                "or exists (select 1 from pragma_table_xinfo(name) where hidden > 1)"  # a column that is computed
            ).fetchone()
            if computed is not None:
                raise SourceError(f"{path} computes {computed[0]}, perhaps without end: only stored tables are read")
            (fault,) = database.execute("pragma quick_check(1)").fetchone()  # pages in a circle have no end, either
            if fault != "ok":
                raise SourceError(f"{path} is damaged: {fault}")
        yield copy


def parse_number(text: str) -> int | float | str:
    """Return a text as a number if it is one, else as it is; `1_000` is not a number."""
    for kind in (int, float):
        try:
            return kind(text) if "_" not in text else text
        except ValueError:
            continue
    return text


def as_number(value: object) -> float | None:
    """Return a logged value as a number, None if it is none. `"NaN"` and `"Infinity"` are: that is how some write
    them."""
    if isinstance(value, bool | int | float):
        try:
            return float(value)
        except OverflowError:
            return math.inf if value > 0 else -math.inf
    if isinstance(value, str) and value.strip().lower().lstrip("+-") in ("nan", "inf", "infinity"):
        return float(value)
    return None


def split_metrics(values: Mapping[str, object], not_numbers: set[str]) -> dict[str, float]:
    """Return the numbers among logged values, those of nested mappings by `outer.inner`; what is none is named in
    `not_numbers`."""
    numbers: dict[str, float] = {}
    for name, value in values.items():
        if isinstance(value, Mapping) and "_type" not in value:  # which is a picture, a table or another file of W&B's
            inner_names: set[str] = set()
            numbers |= {f"{name}.{inner}": number for inner, number in split_metrics(value, inner_names).items()}
            not_numbers |= {f"{name}.{inner}" for inner in inner_names}
        elif (number := as_number(value)) is not None:
            numbers[str(name)] = number
        elif value is None:
            numbers[str(name)] = NULL
        else:
            not_numbers.add(str(name))
    return numbers


# Points of runs on disk, so that of a store of years only one run is in memory.


@dataclass(frozen=True)
class Stored(Sequence[Any]):
    """Items on disk, which are read whenever somebody goes through them."""

    file: IO[bytes]
    place: int
    length: int

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: Any) -> Any:
        self.file.seek(self.place)
        return pickle.load(self.file)[index]  # noqa: S301 - what this process put there

    def __iter__(self) -> Iterator[Any]:
        return iter(self[:])


@contextmanager
def open_shelf() -> Iterator[Callable[[Sequence[Any]], Stored]]:
    """Yield a function that puts items on disk, into a file that is removed at the end. Raises `OSError` if there is no
    room for it."""
    with tempfile.TemporaryFile() as file:

        def put(items: Sequence[Any]) -> Stored:
            stored = Stored(file, file.seek(0, 2), len(items))
            pickle.dump(items, file, pickle.HIGHEST_PROTOCOL)
            return stored

        yield put
