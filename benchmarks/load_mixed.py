"""A mixed load, 50 requests per second for some minutes: does the memory stay flat, and is every request answered?"""

import http.client
import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from statistics import fmean

from benchmarks.load_figures import Figure, percentile
from benchmarks.load_processes import Service
from orchestrator.jobs import Lease
from worker.records.protocol import Heartbeat, PointsBatch
from worker.records.result import Point

REQUESTS_A_SECOND = 50
CLIENTS = 5
MOST_GROWTH_MIB_AN_HOUR = 20.0
"""The growth that counts as flat, from the second third of the time to the last one; a short run says little of it."""

Request = tuple[str, str, bytes | None, str | None]
"""Method, path, body, token."""


class Mix:
    """Requests in turn, as a working group makes them: some submit, workers report, most look."""

    def __init__(self, lease: Lease, experiment_id: str, submission: bytes) -> None:
        run, worker = f"/v1/runs/{lease.run_id}", f"/v1/attempts/{lease.run_id}/1"
        beat = Heartbeat(step=1, device_seconds=1.0).model_dump_json().encode()
        self._lock = threading.Lock()
        self._turn, self._batch = 0, 2_000_000
        self._points, self._token = f"{worker}/points", lease.token
        self._requests: list[Request | None] = [
            ("GET", run, None, None),
            ("GET", "/v1/runs?sort=-last_val_loss&limit=50", None, None),
            ("GET", f"/v1/experiments/{experiment_id}", None, None),
            ("POST", f"{worker}/heartbeat", beat, lease.token),
            ("GET", run, None, None),
            ("GET", f"/v1/points?run={lease.run_id}&metric=train_loss", None, None),
            ("POST", "/v1/experiments", submission, None),
            ("GET", "/v1/experiments", None, None),
            None,  # new points
            None,
        ]

    def next(self) -> Request:
        """The next request."""
        with self._lock:
            self._turn += 1
            request = self._requests[self._turn % len(self._requests)]
            return request or ("POST", self._points, self._next_batch(), self._token)

    def _next_batch(self) -> bytes:
        self._batch += 1
        first = self._batch * 100
        points = [Point(step=first + row, tokens=first, train_loss=3.0, lr=1e-3) for row in range(100)]
        return PointsBatch.from_points(self._batch, points).body()


def mixed(service: Service, lease: Lease, experiment_id: str, submission: bytes, minutes: float) -> Iterator[Figure]:
    """Memory by its growth between the second and the last third of the time, answers by their status."""
    mix, statuses, waits = Mix(lease, experiment_id, submission), Counter[int](), list[float]()
    end = time.monotonic() + 60 * minutes
    clients = [threading.Thread(target=_client, args=(service, mix, statuses, waits, end)) for _ in range(CLIENTS)]
    for client in clients:
        client.start()
    memory = []
    while time.monotonic() < end:
        memory.append(service.process.memory_info().rss / 2**20)
        time.sleep(min(1.0, max(end - time.monotonic(), 0.01)))
    for client in clients:
        client.join()
    third = max(len(memory) // 3, 1)
    growth = (fmean(memory[-third:]) - fmean(memory[-2 * third : -third] or memory)) / (minutes / 3) * 60
    faults = sum(count for status, count in statuses.items() if status >= 500)
    rate = len(waits) / (60 * minutes)
    note = f"{len(waits)} requests, {rate:.0f} a second; p50 {1000 * percentile(waits, 0.5):.0f} ms"
    yield Figure(
        path=f"mixed load of {minutes:g} minutes: answers of 5xx",
        measured=faults,
        unit="answers",
        target="0",
        met=faults == 0,
        note=f"{note}, p99 {1000 * percentile(waits, 0.99):.0f} ms; {dict(sorted(statuses.items()))}",
    )
    yield Figure(
        path=f"mixed load of {minutes:g} minutes: growth of memory",
        measured=growth,
        unit="MiB/hour",
        target="flat" if minutes >= 5 else "",
        met=growth <= MOST_GROWTH_MIB_AN_HOUR if minutes >= 5 else None,
        note=f"{memory[0]:.0f} MiB at first, {memory[-1]:.0f} at last, {max(memory):.0f} at most",
    )


def _client(service: Service, mix: Mix, statuses: Counter[int], waits: list[float], end: float) -> None:
    connection, due = service.connection(), time.monotonic()
    while (due := due + CLIENTS / REQUESTS_A_SECOND) < end:
        time.sleep(max(due - time.monotonic(), 0.0))
        began = time.monotonic()
        statuses[_status(connection, *mix.next())] += 1
        waits.append(time.monotonic() - began)


def _status(
    connection: http.client.HTTPConnection, method: str, path: str, body: bytes | None, token: str | None
) -> int:
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    try:
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        response.read()
    except (OSError, http.client.HTTPException):
        connection.close()
        return 599  # no answer at all is no better than one that says so
    return response.status


def experiment_of(service: Service, lease: Lease) -> str:
    """The experiment that a run belongs to."""
    connection = service.connection()
    connection.request("GET", f"/v1/runs/{lease.run_id}")
    return str(json.loads(connection.getresponse().read())["experiment_id"])
