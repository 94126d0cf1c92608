"""A TCP relay between a client and a service: it cuts every connection when told to."""

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

RESET = struct.pack("ii", 1, 0)
"""SO_LINGER that makes a close a reset, as a killed proxy or a pulled cable looks from afar."""


class Relay:
    """A relay between client and service; `url` is the client's address."""

    def __init__(self, target: str) -> None:
        self._target = target.removeprefix("http://").split(":")
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._pairs: list[socket.socket] = []
        self.lets_through = True
        """Without it new connections are cut at once."""
        self.lost_answers = 0
        """So many answers of the service are cut off before a byte of them is there."""
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Reset every connection."""
        while self._pairs:
            end = self._pairs.pop()
            with contextlib.suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def close(self) -> None:
        """Cut everything, for good."""
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                caller_socket, _ = self._listener.accept()
                if not self.lets_through:
                    caller_socket.close()
                    continue
                target_socket = socket.create_connection((self._target[0], int(self._target[1])))
                self._pairs += [caller_socket, target_socket]
                threading.Thread(target=self._pump, args=(caller_socket, target_socket, False), daemon=True).start()
                threading.Thread(target=self._pump, args=(target_socket, caller_socket, True), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, is_answer: bool) -> None:
        with contextlib.suppress(OSError):
            while piece := source.recv(65_536):
                if is_answer and self.lost_answers:
                    self.lost_answers -= 1
                    self.cut()
                sink.sendall(piece)
            sink.shutdown(socket.SHUT_WR)


@contextmanager
def relay(url: str) -> Iterator[Relay]:
    """A relay to the service at `url`."""
    assert urlsplit(url).scheme == "http"
    line = Relay(url)
    try:
        yield line
    finally:
        line.close()
