"""Whatever happened to what is imported, it ends in runs that can be sent or in one sentence with a name, in bounded
time and memory, and stays as it is. `--hypothesis-profile thorough` looks for many minutes."""

import os
import re
import resource
import shutil
import signal
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from api.client.own_runs import start_run
from api.client.spool import RunSpool, SpoolError, batches, find
from api.imports.mapping import apply_mapping, propose_mapping
from api.imports.readers import READERS, read_runs
from api.imports.source import ReadRequest, SourceError
from api.imports.transfer import _new_lines
from tests.sources.study import FILES, write_mlflow_runs

LOG = "step:0/2 val_loss:10.8 train_time:0ms\nstep:2/2 val_loss:3.8 train_time:9ms\n{'eval_loss': 3.5, 'epoch': 0.5}\n"
COLUMNS = {
    "run": ["a", "a", "b"], "optimizer": ["muon"] * 3, "lr": [0.1] * 3, "seed": [1, 1, 2], "step": [0, 1, 0],
    "key": ["val_loss"] * 3, "value": [3.0, 2.0, 1.0], "timestamp": [1.7e9, 1.7e9, 1.7e9],
}  # fmt: skip
ARROWS = [
    pa.array([[1], None, []]), pa.array([b"\xff", None, b""]), pa.array([None] * 3), pa.array([True, None, False]),
    pa.array([{"a": 1}, None, {}]), pa.array([2**62, -(2**62), None], pa.timestamp("us")), pa.array(["x", "", None]),
    pa.array([2**64 - 1, 0, 1], pa.uint64()), pa.array([float("nan"), 1e308, -1.5]), pa.array([1, 2, None]),
]  # fmt: skip
ODD = [
    *(b"", b"0", b"-1", b"1.5", b"1e999", b"9" * 400, b"9" * 5_000, b"NaN", b"-Infinity", b"null", b"true", b'"x"'),
    *(b"[]", b"{}", b"[" * 3_000 + b"]" * 3_000, b'{"a":' * 3_000 + b"1" + b"}" * 3_000, b"1_000", b"1,5", b"\n"),
    *(b"\x00", b"\xff\xfe", b"\xed\xa0\x80", b"\\ud800", b",", b'"', b'"' + b" - " * 40_000 + b'\n"', b"a" * 200_000),
    *(b"2026-01-01T00:00:00", b"!!python/object/apply:os.abort []", b"&a [*a, *a]", b"\x1b[2J", b"\x80" * 40),
]  # fmt: skip
ENDLESS = "with recursive n(id) as (select 1 union all select id + 1 from n) select id, 'a' as run_name from n"


def write_spool(folder: Path) -> None:
    with start_run(experiment="a", candidate="muon", config={"a": 1.0}, id="one", folder=folder) as run:
        for step in (0, 10, 5):
            run.log(step=step, val_loss=1.5)


def write_mlflow(address: Callable[[Path], str], folder: Path) -> None:
    from mlflow.tracking import MlflowClient

    os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
    write_mlflow_runs(MlflowClient(address(folder)))


class Source(NamedTuple):
    """How something whole is written, and how many times as long as others it takes to import."""

    word: str
    write: Callable[[Path], object]
    cost: int = 1


def published(name: str) -> Source:
    return Source(name, lambda folder: shutil.copytree(next((FILES / name).iterdir()), folder / "muon-s1"))


SOURCES = {
    **{name: published(name) for name in ("csv", "tensorboard", "wandb", "trainer_state")},
    "trackio": Source("trackio", lambda folder: shutil.copy(FILES / "trackio" / "a study.db", folder / "a.db")),
    "parquet": Source("csv", lambda folder: pq.write_table(pa.table(COLUMNS), folder / "a.parquet")),
    "log": Source("log", lambda folder: (folder / "muon-s1.log").write_text(LOG)),
    "spools": Source("spools", write_spool),
    "mlruns": Source("mlflow", partial(write_mlflow, Path.as_uri), 5),
    "mlflow": Source("mlflow", partial(write_mlflow, lambda folder: f"sqlite:///{folder / 'a.db'}"), 25),
}


def change_value(path: Path, random: Random) -> None:
    """What the file holds becomes odd: a database's column or table, a table's column, a word of a text."""
    content, odd = path.read_bytes(), random.choice(ODD)
    if content.startswith(b"SQLite format 3"):
        with suppress(sqlite3.Error, UnicodeDecodeError), closing(sqlite3.connect(path)) as database, database:
            table = random.choice(["metrics", "params", "runs", "configs"])
            if random.random() < 0.2:
                database.execute(f"drop table {table}")
                computed = f"create table {table} (id, x as (hex(zeroblob(id))))"
                database.execute(random.choice([f"create view {table} as {ENDLESS}", computed]))
            else:
                column = random.choice([row[1] for row in database.execute(f"pragma table_info({table})")] or ["x"])
                value = random.choice([odd.decode(errors="replace"), odd, None, 2**62, 1e308, -1])
                database.execute(f"update or ignore {table} set {column} = ? where random() % 2 = 0", (value,))
    elif path.suffix == ".parquet" and content.startswith(b"PAR1"):
        pq.write_table(pa.table({**COLUMNS, random.choice([*COLUMNS, "new"]): random.choice(ARROWS)}), path)
    elif words := list(re.finditer(rb"[\w.+-]+", content)):
        word = random.choice(words)
        path.write_bytes(content[: word.start()] + odd + content[word.end() :])


def change_bytes(path: Path, random: Random) -> None:
    """A part is cut out, comes again twice or thousands of times, is turned round, or becomes something odd."""
    whole = path.read_bytes()
    first, last = sorted(random.choices(range(len(whole) + 1), k=2))
    if random.random() < 0.5:  # whole lines
        first, last = whole.rfind(b"\n", 0, first) + 1, whole.find(b"\n", last) + 1 or len(whole)
    part = whole[first : min(last, first + random.choice([9, 99, 9_999]))]
    repeats = part * random.choice([2, 200_000 // (len(part) + 1)])
    new = random.choice([b"", repeats, bytes(255 - byte for byte in part), random.choice(ODD), random.randbytes(9)])
    path.write_bytes(whole[:first] + new + whole[first + len(part) :])


def change_file(path: Path, random: Random) -> None:
    """It ends early, is another encoding's, comes twice, may not be read, or is not a file at all."""
    content = path.read_bytes()
    code = random.choice(["utf-16", "utf-8-sig", "utf-32", "utf-7"])
    keep = random.choice([
        lambda: path.write_bytes(content[: random.randint(0, len(content))]), lambda: path.write_bytes(b""),
        lambda: path.write_bytes(content.decode("latin-1").encode(code)), lambda: path.chmod(0),
        lambda: shutil.copy(path, path.with_name(f"b{path.name}")), None,
    ])  # fmt: skip
    if keep is not None:
        keep()
        return
    path.unlink()
    targets = (path.parent, path, "/dev/zero", "nothing")
    links = [partial(path.symlink_to, target) for target in targets]
    replacements: list[Callable[[], object]] = [partial(os.mkfifo, path), path.mkdir, *links, lambda: None]
    random.choice(replacements)()


def seen(folder: Path) -> dict[Path, object]:
    """All that a reader could have changed."""
    return {
        path: (path.lstat().st_mode, path.lstat().st_mtime_ns, path.is_file() and path.read_bytes())
        for path in (folder, *folder.rglob("*"))
    }


@contextmanager
def bounded() -> Iterator[None]:
    """Twenty seconds of computing, sixty of waiting, half a GiB."""

    class EndlessError(BaseException):
        pass

    def give_up(*_: object) -> None:
        raise EndlessError

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    timers = {signal.SIGPROF: (signal.ITIMER_PROF, 20.0), signal.SIGALRM: (signal.ITIMER_REAL, 60.0)}
    former = {number: signal.signal(number, give_up) for number in timers}
    try:
        for timer, seconds in timers.values():
            signal.setitimer(timer, seconds)
        yield
    finally:
        for number, (timer, _) in timers.items():
            signal.setitimer(timer, 0)
            signal.signal(number, former[number])
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < peak + 2**19, "KiB"


def import_all(word: str, location: Path) -> int:
    """What the command line does of an import up to its sending; how many lines it would send."""
    if word == "spools":
        spools = [RunSpool(path) for path in find(location)]
        return sum(len(batch.lines) for spool in spools for batch in batches(spool.run, spool.part, spool.lines()))
    runs = list(read_runs(READERS[word], ReadRequest(places=[str(location)])))
    mapping, lines = propose_mapping(runs, {}, {"candidate": "muon"}), 0
    for run in runs:
        with suppress(SourceError):  # it is named, and the others are sent
            mapped = apply_mapping(run, mapping, READERS[word].source, "a")
            lines += sum(len(batch.lines) for batch in batches(mapped.header, "a", _new_lines(mapped, {})))
    return lines


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("whole")


@pytest.mark.timeout(20_000)
@pytest.mark.parametrize("name", SOURCES)
def test_whatever_is_imported_ends_in_runs_or_in_one_sentence_and_stays_as_it_is(name: str, whole: Path) -> None:
    word, write, cost = SOURCES[name]
    (whole / name).mkdir()
    write(whole / name)
    file = "a.db" if name == "mlflow" else "."
    line_counts = [import_all(word, whole / name / file)]

    @settings(max_examples=settings().max_examples // 2 // cost, phases=[Phase.generate])
    @given(random=st.randoms(use_true_random=False))
    def spoil_and_import(random: Random) -> None:
        with TemporaryDirectory() as temporary:
            folder = shutil.copytree(whole / name, Path(temporary) / "runs")
            for change in random.choices([change_value, change_bytes, change_file], k=random.randint(1, 3)):
                if files := [path for path in sorted(folder.rglob("*")) if path.is_file()]:
                    change(path := random.choice(files), random)
            target = path if random.random() < 0.2 else folder / file
            original, sentence = seen(folder), str(folder)
            try:
                with bounded():
                    line_counts.append(import_all(word, target))
            except (SourceError, SpoolError, OSError) as error:
                sentence = str(error)
            assert str(folder) in sentence and "\n" not in sentence and len(sentence) <= 2_000
            assert seen(folder) == original

    spoil_and_import()
    assert line_counts[0] > 0 and (len(line_counts) > 1 or cost > 1), "some damage is none, or leaves the rest whole"
