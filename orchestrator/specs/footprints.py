"""Footprints: what optimizers keep for a model, counted in another process, kept on disk.

    ask(question) ── known on disk ──► Footprint
          └── unknown ──► None, and one process at a time counts; asked seconds later it is known; `count` waits for it

The count needs torch, which the api process never loads. An answer is kept under a digest of everything that it
depends on: the question, the code of `optim`, of own optimizers and of the models, and the versions of the libraries.
"""

import hashlib
import json
import math
import os
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, entry_points, version
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from threading import BoundedSemaphore, Condition, Thread

import structlog
from pydantic import ValidationError

from optim.catalog import CATALOG, Scalar, lookup
from optim.errors import OptimError
from orchestrator.errors import ConflictError
from worker.catalog import presets
from worker.files import write_atomically
from worker.footprint.process import FootprintAnswer, FootprintQuestion, count_footprints
from worker.records.footprint import Footprint
from worker.spec.parts import Precision

log = structlog.get_logger(__name__)

RANK_RATIOS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
STATE_DTYPES = ("float32", "bfloat16", "int8")
RANKS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 128, 256, 512, 1024)
"""Few values: whoever reads a page starts processes and fills a folder, so that both must have an end."""
PLANNED = tuple(entry.name for entry in CATALOG if entry.has_plan)
"""Optimizers with a block plan."""
LIBRARIES = ("torch", "transformers", "pytorch_optimizer", "torchao")
SOURCES = (
    "optim",
    "worker/footprint",
    "worker/distributed/sharding.py",
    "worker/models.py",
    "worker/records/footprint.py",
    "worker/catalog/presets.py",
    "worker/tasks/next_token.py",
)
"""The code that a count depends on: folders with all that is in them, and files."""
RETRY_SECONDS = 60.0
"""A count that came to nothing is tried again when somebody asks after so long: memory may have been short."""
MOST_WAITING = 2
"""Callers that wait for a count, each on a thread that workers' reports need; others are answered at once."""


def footprint_question(
    model: str,
    rank_ratio: object = None,
    state_dtype: object = None,
    ranks: int = 1,
    precision: Precision | None = None,
) -> FootprintQuestion:
    """Return the question for all optimizers with such an option at that value; None is each one's own default. With a
    precision the passes and steps of one process are counted, too. Raises `ValueError` for values that are not among
    those above."""
    ratio = next((ratio for ratio in RANK_RATIOS if ratio == rank_ratio), None)
    dtype = next((dtype for dtype in STATE_DTYPES if dtype == state_dtype), None)
    if (rank_ratio is not None and ratio is None) or (state_dtype is not None and dtype is None):
        raise ValueError(f"no footprint is kept for rank ratio {rank_ratio} and state of {state_dtype}")
    if ranks not in RANKS:
        raise ValueError(f"no footprint is kept for {ranks} ranks")
    if precision is not None and ranks > 1:
        raise ValueError("what fits a card is counted for one process")
    options: dict[str, Scalar | None] = {"rank_ratio": ratio, "state_dtype": dtype}
    chosen = {name: value for name, value in options.items() if value is not None}
    return FootprintQuestion(model=model, options=chosen, ranks=ranks, precision=precision)


def plan_question(
    model: str, optimizer: str, rank_ratio: object = None, state_dtype: object = None
) -> FootprintQuestion:
    """Return the question for one optimizer with all of its blocks. Raises `ValueError` as `footprint_question` does,
    and where it has no block plan."""
    if optimizer not in PLANNED:
        raise ValueError(f"{optimizer[:40]!r} has no block plan; those that have one: {', '.join(PLANNED)}")
    question = footprint_question(model, rank_ratio, state_dtype)
    return question.model_copy(update={"optimizers": (optimizer,), "with_blocks": True})


class Footprints:
    """Answers questions, each counted once. Thread-safe."""

    def __init__(self, folder: Path) -> None:
        """`folder` keeps the answers; it is made with the first one."""
        self._folder = folder
        self._changed = Condition()
        self._asked: dict[Path, FootprintQuestion] = {}
        self._failed: dict[Path, tuple[str, float]] = {}
        """Why, and when."""
        self._waiters = BoundedSemaphore(MOST_WAITING)

    def find(self, question: FootprintQuestion) -> Footprint | None:
        """Return the answer, if it was counted before. Cheap."""
        try:
            return Footprint.model_validate_json(self._path(question).read_bytes())
        except (OSError, ValidationError):
            return None

    def ask(self, question: FootprintQuestion) -> Footprint | None:
        """Return the answer, or None while it is being counted; raises `KeyError` for a model that has no preset."""
        presets.preset(question.model)
        footprint = self.find(question)
        if footprint is None:
            self._begin(question)
        return footprint

    def count(self, question: FootprintQuestion) -> Footprint | None:
        """Return the answer once it is counted; None if it is still being counted and enough threads wait already.
        Raises `KeyError` for an unknown model, and `ConflictError` where it cannot be counted."""
        footprint = self.ask(question)
        if footprint is None and self._waiters.acquire(blocking=False):
            try:
                with self._changed:
                    self._changed.wait_for(lambda: self._path(question) not in self._asked)
            finally:
                self._waiters.release()
            footprint = self.find(question)
        if footprint is None and (failure := self.failure(question)) is not None:
            raise ConflictError(failure)
        return footprint

    def failure(self, question: FootprintQuestion) -> str | None:
        """Return the reason why the last count of this question failed; None while it is tried again."""
        with self._changed:
            return self._failed.get(self._path(question), (None, 0.0))[0]

    def _begin(self, question: FootprintQuestion) -> None:
        path = self._path(question)
        with self._changed:
            _, failed_at = self._failed.get(path, ("", -math.inf))
            if path in self._asked or time.monotonic() - failed_at < RETRY_SECONDS:
                return
            self._failed.pop(path, None)
            self._asked[path] = question
            if len(self._asked) == 1:
                Thread(target=self._count_all, name="footprints", daemon=True).start()

    def _count_all(self) -> None:
        """Count all queued questions, each batch in one process, until none is left."""
        with self._changed:
            questions = dict(self._asked)
        while questions:
            failures = self._count(questions)
            with self._changed:
                self._failed |= failures
                for path in questions:
                    del self._asked[path]
                self._changed.notify_all()
                questions = dict(self._asked)

    def _count(self, questions: dict[Path, FootprintQuestion]) -> dict[Path, tuple[str, float]]:
        """Store the answers of a process, and return the failures: path → (reason, time)."""
        failures: dict[Path, tuple[str, float]] = {}
        try:
            answers = dict(zip(questions, count_footprints(list(questions.values())), strict=True))
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            answers = dict.fromkeys(questions, FootprintAnswer(fault=str(error)))
        for path, answer in answers.items():
            fault = answer.fault
            if answer.footprint is not None:
                try:
                    path.parent.mkdir(parents=True, exist_ok=True)
                    write_atomically(path, answer.footprint.model_dump_json())
                except OSError as error:
                    fault = str(error)
            if fault is not None:
                log.warning("a footprint could not be counted", model=questions[path].model, error=fault)
                failures[path] = f"The count for {questions[path].model} came to nothing: {fault}", time.monotonic()
        return failures

    def _path(self, question: FootprintQuestion) -> Path:
        return answer_path(self._folder, question.model_dump_json())


def answer_path(folder: Path, *question: object) -> Path:
    """Return the path of the answer to that question, which is kept as long as the counting code is this one."""
    parts = [*question, code_digest()]
    return folder / f"{hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]}.json"


@cache
def code_digest() -> str:
    """Return the SHA-256 of the code that counts, and the versions of the libraries that it counts with."""
    digest = hashlib.sha256()
    packages = Path(str(files("worker"))).parent
    for source in (*map(packages.joinpath, SOURCES), *_own_sources()):
        for file in sorted(source.rglob("*.py")) if source.is_dir() else [source]:
            digest.update(file.read_bytes())
    libraries = [f"{name} {_version(name)}" for name in LIBRARIES]
    digest.update("\n".join([*libraries, os.environ.get(lookup.VARIABLE, "")]).encode())
    return digest.hexdigest()


def _own_sources() -> Iterator[Path]:
    """Yield the packages of the optimizers that the operator allows, found without loading what trains."""
    allowed = {name.strip() for name in os.environ.get(lookup.VARIABLE, "").split(",")}
    modules = []
    for point in entry_points(group=lookup.GROUP):
        if point.name in allowed:
            with suppress(OptimError):  # one that cannot be used cannot be counted either, and the count says so
                modules += [point.module, lookup.entry(point.name).factory]
    for package in dict.fromkeys(re.split("[.:]", module)[0] for module in modules):
        if (module_spec := find_spec(package)) is not None:
            yield from map(Path, module_spec.submodule_search_locations or filter(None, [module_spec.origin]))


def _version(library: str) -> str:
    try:
        return version(library)
    except PackageNotFoundError:
        return "none"
