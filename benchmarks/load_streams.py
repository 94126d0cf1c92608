"""The delay of a metric for its viewers: 200 event streams of one experiment, and a worker that reports to it."""

import json
import random
import selectors
import socket
import threading
import time
from collections.abc import Iterator

from benchmarks.load_figures import Figure, percentile
from benchmarks.load_processes import Service, call
from orchestrator.jobs import Lease
from worker.records.protocol import PointsBatch
from worker.records.result import Point

LISTENERS = 200
REPORTS = 12
PATIENCE_SECONDS = 60.0


class Listeners:
    """Open streams, read by one thread; `heard` has the moment of the newest event of each."""

    def __init__(self, service: Service, path: str, count: int) -> None:
        self.heard: dict[int, float] = {}
        self._selector = selectors.DefaultSelector()
        self._sockets = [socket.create_connection((service.host, service.port)) for _ in range(count)]
        request = f"GET {path} HTTP/1.1\r\nHost: {service.host}:{service.port}\r\nAccept: text/event-stream\r\n\r\n"
        for number, connection in enumerate(self._sockets):
            connection.sendall(request.encode())
            connection.setblocking(False)
            self._selector.register(connection, selectors.EVENT_READ, number)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    def wait(self, since: float) -> list[float]:
        """The moments after `since` at which each of them has heard an event, once all of them have."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while sum(moment > since for moment in list(self.heard.values())) < len(self._sockets):
            if time.monotonic() > deadline:
                raise RuntimeError("an event did not reach every listener within a minute")
            time.sleep(0.01)
        return list(self.heard.values())

    def close(self) -> None:
        """Leave."""
        self._closing.set()
        self._thread.join()
        for connection in self._sockets:
            connection.close()

    def _listen(self) -> None:
        while not self._closing.is_set():
            for key, _ in self._selector.select(timeout=0.2):
                received = key.fileobj.recv(65536)  # type: ignore[union-attr]  # a socket
                if b"event: changed" in received:
                    self.heard[key.data] = time.monotonic()
                elif not received:
                    raise RuntimeError("a stream was closed")


def streams(service: Service, lease: Lease) -> Iterator[Figure]:
    """Yield the delays from the sending of a batch to its event in each of the streams."""
    run = json.loads(call(service.connection(), "GET", f"/v1/runs/{lease.run_id}"))
    began = time.monotonic()
    listeners = Listeners(service, f"/v1/experiments/{run['experiment_id']}/stream", LISTENERS)
    try:
        listeners.wait(began)
        connection, late = service.connection(), []
        busy = service.cpu_seconds()
        for number in range(REPORTS):
            time.sleep(random.uniform(0.0, 0.7))
            batch = PointsBatch.from_points(1_000_000 + number, [Point(step=number, tokens=number, train_loss=3.0)])
            sent = time.monotonic()
            call(connection, "POST", f"/v1/attempts/{lease.run_id}/1/points", batch.body(), lease.token)
            late += [moment - sent for moment in listeners.wait(sent)]
        busy = service.cpu_seconds() - busy
    finally:
        listeners.close()
    p95 = percentile(late, 0.95)
    yield Figure(
        path=f"metric to an event stream, {LISTENERS} listeners, p95",
        measured=p95,
        unit="s",
        target="≤ 1",
        met=p95 <= 1,
        note=f"p50 {percentile(late, 0.5):.2f} s; {1000 * busy / REPORTS:.0f} ms of processor time a metric",
    )
