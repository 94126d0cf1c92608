"""Footprints for pages: what every optimizer keeps for a model, counted in a short-lived process, kept on disk.

    ask(question) ── known on disk ──► Footprint
          └── unknown ──► None, and one process at a time counts; asked again seconds later, it is known

The count needs torch, which the api process never loads. An answer is kept under a digest of everything that it
depends on: the question, the code of `optim` and of the models, and the versions of the libraries.
"""

import hashlib
import json
import subprocess
import time
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from pathlib import Path
from threading import Lock, Thread

import structlog
from pydantic import ValidationError

from optim.catalog import Scalar
from worker.catalog import presets
from worker.files import write_atomically
from worker.footprint.process import FootprintQuestion, count_footprints
from worker.records.footprint import Footprint

log = structlog.get_logger(__name__)

RANK_RATIOS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
STATE_DTYPES = ("float32", "bfloat16")
"""Few values: whoever reads a page starts processes and fills a folder, so that both must have an end."""
LIBRARIES = ("torch", "transformers", "pytorch_optimizer", "torchao")
SOURCES = ("optim", "worker/footprint", "worker/models.py", "worker/records/footprint.py", "worker/catalog/presets.py")
"""The code that a count depends on: folders with all that is in them, and files."""
RETRY_SECONDS = 60.0
"""A count that came to nothing is tried again when somebody asks after so long: memory may have been short."""


@dataclass(frozen=True, kw_only=True)
class FootprintRequest:
    """For which model, with which options; None is each optimizer's own default."""

    model: str
    rank_ratio: float | None = None
    state_dtype: str | None = None

    @classmethod
    def parse(cls, model: str, rank_ratio: object, state_dtype: object) -> "FootprintRequest":
        """A question as somebody may ask it; raises `ValueError` for values that are not among those above."""
        ratio = next((known for known in RANK_RATIOS if known == rank_ratio), None)
        dtype = next((known for known in STATE_DTYPES if known == state_dtype), None)
        if (rank_ratio is not None and ratio is None) or (state_dtype is not None and dtype is None):
            raise ValueError(f"no footprint is kept for rank ratio {rank_ratio} and state of {state_dtype}")
        return cls(model=model, rank_ratio=ratio, state_dtype=dtype)

    def options(self) -> dict[str, Scalar]:
        """Given to every optimizer that has such an option."""
        given: dict[str, Scalar] = {"rank_ratio": self.rank_ratio, "state_dtype": self.state_dtype}
        return {name: value for name, value in given.items() if value is not None}


class Footprints:
    """Answers questions, each counted once. Thread-safe."""

    def __init__(self, folder: Path) -> None:
        """`folder` keeps the answers; it is made with the first one."""
        self._folder = folder
        self._lock = Lock()
        self._asked: list[FootprintRequest] = []
        self._failed: dict[FootprintRequest, tuple[str, float]] = {}
        """Why, and when."""

    def find(self, question: FootprintRequest) -> Footprint | None:
        """The answer, if it was counted before. Cheap."""
        try:
            return Footprint.model_validate_json(self._path(question).read_bytes())
        except (OSError, ValidationError):
            return None

    def ask(self, question: FootprintRequest) -> Footprint | None:
        """The answer, or None while it is being counted; raises `KeyError` for a model that has no preset."""
        presets.preset(question.model)
        found = self.find(question)
        if found is None:
            self._begin(question)
        return found

    def failure(self, question: FootprintRequest) -> str | None:
        """Why the last count of this question came to nothing; None while it is tried again."""
        with self._lock:
            return self._failed.get(question, (None, 0.0))[0]

    def _begin(self, question: FootprintRequest) -> None:
        with self._lock:
            if question in self._asked or not self._may_be_tried(question):
                return
            self._failed.pop(question, None)
            self._asked.append(question)
            if len(self._asked) == 1:
                Thread(target=self._count_all, name="footprints", daemon=True).start()

    def _may_be_tried(self, question: FootprintRequest) -> bool:
        return question not in self._failed or time.monotonic() - self._failed[question][1] >= RETRY_SECONDS

    def _count_all(self) -> None:
        """Count what was asked, one after another, until nothing is left."""
        while True:
            with self._lock:
                if not self._asked:
                    return
                question = self._asked[0]
            fault = None
            try:
                self._count(question)
            except (OSError, ValueError, subprocess.SubprocessError) as error:
                log.warning("a footprint could not be counted", model=question.model, error=str(error))
                fault = f"The count for {question.model} came to nothing: {error}"
            with self._lock:
                self._asked.remove(question)
                if fault is not None:
                    self._failed[question] = (fault, time.monotonic())

    def _count(self, question: FootprintRequest) -> None:
        """Ask a process, and keep its answer only if it is one."""
        (answer,) = count_footprints([FootprintQuestion(model=question.model, options=question.options())])
        if (found := answer.footprint) is None:
            raise ValueError(answer.fault)
        path = self._path(question)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, found.model_dump_json())

    def _path(self, question: FootprintRequest) -> Path:
        asked = json.dumps([question.model, question.options(), code_digest()], sort_keys=True)
        return self._folder / f"{hashlib.sha256(asked.encode()).hexdigest()[:32]}.json"


@cache
def code_digest() -> str:
    """SHA-256 over the code that counts, and the versions of the libraries that it counts with."""
    digest = hashlib.sha256()
    packages = Path(str(files("worker"))).parent
    for source in map(packages.joinpath, SOURCES):
        for file in sorted(source.rglob("*.py")) if source.is_dir() else [source]:
            digest.update(file.read_bytes())
    digest.update("\n".join(f"{name} {_version(name)}" for name in LIBRARIES).encode())
    return digest.hexdigest()


def _version(library: str) -> str:
    try:
        return version(library)
    except PackageNotFoundError:
        return "none"
