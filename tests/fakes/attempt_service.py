"""The service's side of one attempt, kept in memory and served over real HTTP: what the worker's protocol promises.

Points are kept by step, batches are idempotent by their sequence, a stale token is answered 409. The test decides
when the service is away, slow to answer, or has given the lease to somebody else.
"""

import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.factories.specification import made_spec
from worker.records.protocol import Assignment, CheckpointNotice, Command, Failure, Heartbeat, PointsBatch, Stopped
from worker.records.result import Observation, Point, Record, Result

TOKEN = "token-of-the-lease"


def made_assignment(run_folder: Path, dataset_folder: Path | None = None, **changes: Any) -> Assignment:
    """Return the first attempt of the run r1, with its data in the folder of the run where no other is given."""
    fields = {"run_id": "r1", "attempt": 1, "spec": made_spec(), "lease_seconds": 30, "heartbeat_seconds": 0.05}
    folders = {"run_folder": str(run_folder), "dataset_folder": str(dataset_folder or run_folder)}
    return Assignment.model_validate(fields | folders | changes)


@dataclass
class AttemptService:
    """Use it in a `with`; `url` is what a worker is given."""

    assignment: Assignment
    command: Command = Command.CONTINUE
    status: int | None = None
    """Answer every request with this status."""
    lose_answers: int = 0
    """The number of requests that are carried out although their answers do not arrive."""
    heartbeats: list[Heartbeat] = field(default_factory=list)
    batches: list[PointsBatch] = field(default_factory=list)
    repeated_batches: int = 0
    points: dict[int, Point] = field(default_factory=dict)
    observations: dict[tuple[int, str], Observation] = field(default_factory=dict)
    checkpoints: list[CheckpointNotice] = field(default_factory=list)
    ending: Result | Stopped | Failure | None = None
    _server: ThreadingHTTPServer | None = None
    _port: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __enter__(self) -> "AttemptService":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """Address of the service; the same after a `stop` and `start`."""
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Listen, on the same port as before."""
        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), _handler_of(self))
        self._server.daemon_threads = True
        self._port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        """Refuse connections from now on, and answer nothing on those that there are."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def begin_attempt(self, attempt: int) -> None:
        """Expect that attempt from now on; what earlier ones brought stays."""
        with self._lock:
            self.assignment = self.assignment.model_copy(update={"attempt": attempt})
            self.batches = []
            self.ending = None

    def answer(self, path: str, token: str | None, body: bytes) -> tuple[int, bytes]:
        """Status and body of the answer to one request."""
        with self._lock:
            if self.status is not None:
                return self.status, b"as the test wants"
            if token != f"Bearer {TOKEN}":
                return 409, b"the lease is gone"
            prefix = f"/v1/attempts/{self.assignment.run_id}/{self.assignment.attempt}/"
            if not path.startswith(prefix):
                return 409, b"another attempt holds the lease"
            reply = self._carry_out(path.removeprefix(prefix), body)
            return (204, b"") if reply is None else (200, json.dumps(reply).encode())

    def _carry_out(self, verb: str, body: bytes) -> Any:
        if verb == "hello":
            return self.assignment.model_dump(mode="json")
        if verb == "heartbeat":
            self.heartbeats.append(Heartbeat.model_validate_json(body))
            return {"command": self.command.value}
        if verb == "points":
            return self._add_points(PointsBatch.model_validate_json(body))
        if verb == "checkpoint":
            self.checkpoints.append(CheckpointNotice.model_validate_json(body))
            return None
        endings: dict[str, type[Record]] = {"finish": Result, "stopped": Stopped, "fail": Failure}
        self.ending = endings[verb].model_validate_json(body)  # type: ignore[assignment]  # one of the three
        return None

    def _add_points(self, batch: PointsBatch) -> None:
        if batch.sequence < len(self.batches):
            assert self.batches[batch.sequence] == batch, "a repeated batch must be the same batch"
            self.repeated_batches += 1
            return
        assert batch.sequence == len(self.batches), f"batch {batch.sequence} after {len(self.batches)}"
        self.batches.append(batch)
        self.points.update({point.step: point for point in batch.points})
        self.observations.update({(entry.step, entry.probe): entry for entry in batch.observations})


def _handler_of(service: AttemptService) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if service._server is None:
                self.close_connection = True
                return
            status, answer = service.answer(self.path, self.headers["Authorization"], body)
            if service.lose_answers > 0:
                service.lose_answers -= 1
                self.close_connection = True
                return
            self.send_response(status)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    return Handler
