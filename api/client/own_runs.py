"""`start_run`: log from a training loop of your own, in three lines, with or without a service.

    run = start_run(experiment="muon against adamw", candidate="muon", lr=0.02, seed=1)
    run.log(step=100, val_loss=3.21)
    run.finish()

What is logged is the kernel's when `log` returns, and on disk (`spool.py`) until `adapm-bench import` or the background
thread of a run with a `url` has sent it, and after. `log` never raises, and waits for no network: what it cannot keep
it leaves out, with one warning for each reason, by Python's `logging`.
"""

import json
import logging
import math
import os
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

from pydantic import ValidationError

from api.client.spool import FOLDER, FOLDER_VARIABLE, SUFFIX, RunSpool, SpoolError, SpoolHead
from orchestrator.external_runs import RANK_VARIABLES, RunHeader
from worker.repeating import Repeating

log = logging.getLogger("adapm_bench")

SEND_SECONDS = 5.0
"""Between two looks of the background thread at what is new."""
FINISH_SECONDS = 5.0
"""The time that `finish` waits for unsent points; the spool keeps them in any case."""
LARGEST_STEP = 2**53
MOST_METRICS = 200
"""The most metrics in one call of `log`, and in one line; an importer asks for as many at once."""
URL_VARIABLE = "ADAPM_BENCH_URL"


def start_run(
    *,
    experiment: str,
    candidate: str,
    lr: float | None = None,
    seed: int | None = None,
    workload: str | None = None,
    config: Mapping[str, Any] | None = None,
    tags: Iterable[str] = (),
    id: str | None = None,
    folder: str | Path | None = None,
    url: str | None = None,
    key: str | None = None,
) -> "OwnRun":
    """Begin a run of an experiment, or go on with one whose `id` is given.

    Runs are judged by `candidate`, `lr` and `seed`: equal seeds pair the candidates. `workload` names what all of them
    share; `config` is whatever else should be kept. `folder`: that of the spool; default $ADAPM_BENCH_RUNS, else
    `adapm-runs`. `url`: a service to send to while it trains; default $ADAPM_BENCH_URL, else none. Raises `ValueError`
    for what could not be judged or kept; a disk that cannot be written to is only warned of.

    Of the processes of a distributed training the first one logs, by `torch.distributed` or $RANK; the others' runs
    keep nothing. Where only srun or mpirun say which process it is, each logs, and the judgement takes the first of
    those with the same candidate, rate and seed.
    """
    # By which a launcher says that this is not the first of its processes.
    ranks = {name: os.environ.get(name, "") for name in RANK_VARIABLES}
    header = valid_header(
        experiment=experiment,
        candidate=candidate,
        lr=None if lr is None else float(lr),
        seed=None if seed is None else int(seed),
        workload=workload,
        config={name: int(rank) for name, rank in ranks.items() if rank.isdecimal() and int(rank)} | {**(config or {})},
        tags=tuple(tags),
        started_at=time.time(),
    )
    run_id = id or uuid4().hex[:16]
    if not run_id.replace("-", "").replace("_", "").isalnum() or not run_id.isascii() or len(run_id) > 64:
        raise ValueError(f"id={run_id!r}: use up to 64 letters, digits, - and _")
    spool_folder = Path(folder or os.environ.get(FOLDER_VARIABLE) or FOLDER)
    last_step = _last_step(spool_folder, run_id, header)
    return OwnRun(run_id, header, spool_folder, url or os.environ.get(URL_VARIABLE), key, last_step=last_step)


def valid_header(*, config: Mapping[str, Any], **fields: Any) -> RunHeader:
    """Return the header of a run, its configuration as JSON can keep it. Raises `ValueError` with the field, its value
    and what is wrong with it."""
    try:
        return RunHeader(config=plain_value(config), **fields)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_context=False)[0]
        raise ValueError(f"{'.'.join(map(str, fault['loc']))}={str(fault['input'])[:200]!r}: {fault['msg']}") from None
    except RecursionError:
        raise ValueError("config is nested too deeply, or holds itself") from None


def _is_first_process() -> bool:
    """Return whether this process logs for all that train one model together, as far as it is known that they do."""
    distributed = sys.modules.get("torch.distributed")  # what did not import it is not part of it
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return bool(distributed.get_rank() == 0)
    return os.environ.get("RANK", "0") == "0"


def _last_step(folder: Path, run_id: str, header: RunHeader) -> int:
    """Return the last step of the run's newest session in that folder, -1 without one. Raises `ValueError` if the
    run is another one: the service would refuse its lines."""
    sessions: list[tuple[float, int]] = []
    for path in sorted(folder.glob(f"{run_id}.*{SUFFIX}")):
        with suppress(OSError, SpoolError):
            spool = RunSpool(path)
            start, step = spool.run, spool.last_step()
            sessions += [] if step is None else [(start.started_at, step)]
            for name in ("experiment", "candidate", "lr", "seed"):
                if getattr(start, name) != getattr(header, name):
                    raise ValueError(
                        f"{name}={getattr(header, name)!r}: run {run_id} began with {getattr(start, name)!r} ({path}); "
                        "go on with the same, or give another id"
                    )
    return max(sessions, default=(0.0, -1))[1]


class OwnRun:
    """A run that is being logged. Thread-safe; as a context it finishes by itself, as failed where an error leaves."""

    def __init__(
        self, run_id: str, header: RunHeader, folder: Path, url: str | None, key: str | None, *, last_step: int = -1
    ) -> None:
        """Begin a run for `start_run`; `last_step` is that of the session before."""
        self.id = run_id
        self.header = header
        self.path: Path | None = None
        """The spool; None if nothing is kept."""
        self.left_out = 0
        """Values and lines that could not be kept."""
        self._lock = threading.Lock()
        self._file: int | None = None
        self._torn = False
        self._step = last_step
        self._warned: set[str] = set()
        self._sending: Repeating | None = None
        self._spool: RunSpool | None = None
        self._is_away = False
        if _is_first_process():
            self._open(folder)
        if self.path is not None and url is not None:
            send = partial(self._send, self.path, url, key)
            self._sending = Repeating("adapm-bench-sender", SEND_SECONDS, send, once_more_at_end=True)
            self._sending.start()

    def log(self, metrics: Mapping[str, Any] | None = None, /, *, step: int | None = None, **more: Any) -> None:
        """Keep metrics at a step: any numbers, by names of your own; `val_loss` is what runs are judged by.

        Without a `step` it is the one behind the last, also of a run that goes on. Steps may come in any order. A run
        that goes on from a checkpoint just logs again, also in the same process: what it had logged of later steps
        before is left out, once it logs a metric again at a step before its last. NaN and infinity are kept: a run
        whose last loss is none of the finite numbers has diverged. What is not a number is left out.
        """
        if self._file is None:
            return
        try:
            numbers = self._numbers({**metrics, **more} if metrics else more)
            number = self._step + 1 if step is None else int(step)
            if not 0 <= number <= LARGEST_STEP or (step is not None and number != step):
                self._leave_out(f"step {step} is no whole number from 0 to 2^53")
            elif numbers:
                self._step = number
                self._write(json.dumps({"at": time.time(), "step": number, "metrics": numbers}).encode() + b"\n")
        except Exception as error:  # noqa: BLE001 - whatever a value of the caller's raises, the training goes on
            self._leave_out(f"{type(error).__name__}: {error}")

    def finish(self, state: str = "finished", *, wait_seconds: float = FINISH_SECONDS) -> None:
        """Say that the run has ended, `finished` or `failed`: only then is it judged. Calling it again does nothing."""
        if state not in ("finished", "failed"):
            self._leave_out(f"state {state!r} is neither finished nor failed; taken for failed")
            state = "failed"
        with self._lock:
            file, sending = self._file, self._sending
        if file is None:
            return
        self._write(json.dumps({"at": time.time(), "state": state}).encode() + b"\n")
        with self._lock:
            self._file = None
        try:
            os.fsync(file)
            os.close(file)
        except OSError as error:
            self._leave_out(f"{type(error).__name__}: {error}")
        if sending is not None:
            sending.stop(wait_seconds)

    @property
    def has_ended(self) -> bool:
        """Return whether the run has finished, so that `log` has no effect."""
        return self._file is None and self.path is not None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.finish("finished" if kind is None else "failed")

    def _open(self, folder: Path) -> None:
        part = uuid4().hex[:16]
        path = folder / f"{self.id}.{part}{SUFFIX}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
        except OSError as error:
            self._leave_out(f"nothing is logged: {error}")
            return
        self._file, self.path = file, path
        self._write(SpoolHead(id=self.id, part=part, run=self.header).model_dump_json().encode() + b"\n")
        self._write(json.dumps({"at": self.header.started_at, "state": "running"}).encode() + b"\n")

    def _write(self, line: bytes) -> None:
        """Write a line by one call of the kernel, which no kill can split; a full disk can, and the next line then
        starts on a line of its own."""
        with self._lock:
            if self._file is None:
                return
            if self._torn:
                line = b"\n" + line
            try:
                self._torn = os.write(self._file, line) < len(line)
            except OSError as error:
                self._leave_out(f"{type(error).__name__}: {error}")
                return
            if self._torn:
                self._leave_out("the disk has no room for a line")

    def _send(self, path: Path, url: str, key: str | None) -> None:
        """Send the spool as far as it has grown, and warn of the first of several failures. The service may be away for
        hours: the next call tries again."""
        from api.client.client import Client  # the HTTP client, which a run without a service needs none of

        try:
            with Client(url, key=key, retries=0, timeout_seconds=10.0) as client:
                self._spool = self._spool or RunSpool(path)
                self._spool.send(client)
            self._is_away = False
        except Exception as error:  # noqa: BLE001 - the spool keeps all of it, and a training is not ended for this
            if not self._is_away:
                log.warning("not sent yet, and kept in %s: %s", path, error)
            self._is_away = True

    def _numbers(self, metrics: Mapping[str, Any]) -> dict[str, float | str]:
        numbers: dict[str, float | str] = {}
        for name, value in metrics.items():
            try:
                # Of a loss that is still in its graph `float` warns.
                number = float(value.detach() if hasattr(value, "detach") else value)
            except (TypeError, ValueError, RuntimeError, OverflowError):  # of a tensor of several numbers, for instance
                self._leave_out(f"{name} is not a number")
                continue
            name = str(name)
            if not 0 < len(name) <= 128 or "\x00" in name or len(numbers) == MOST_METRICS:
                self._leave_out(f"more than {MOST_METRICS} metrics at once, or a name of no or over 128 letters")
                continue
            numbers[name] = number if math.isfinite(number) else repr(number)
        return numbers

    def _leave_out(self, reason: str) -> None:
        self.left_out += 1
        if reason not in self._warned and len(self._warned) < 20:
            self._warned.add(reason)
            # Not by `warnings`: where these are errors they would end a training.
            log.warning("run %s leaves something out: %s", self.id, reason)


def plain_value(value: Any) -> Any:
    """Return a setting as JSON can store it; a value of any other type becomes text."""
    if isinstance(value, str):
        return value.encode(errors="replace").decode()  # half of a surrogate pair is no text
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else repr(value)
    if isinstance(value, Mapping):
        return {str(name): plain_value(member) for name, member in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain_value(member) for member in value]
    try:
        return plain_value(value.item())  # numpy's and torch's numbers
    except Exception:  # noqa: BLE001 - whatever it is, its text says it
        return str(value)
