"""A real receiver of webhooks on loopback: it remembers what was posted, and answers as a test wants it to."""

import base64
import hashlib
import hmac
import http.server
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Post:
    """A request."""

    path: str
    headers: dict[str, str]
    body: bytes
    received_at: float = field(default_factory=time.time)

    def verified(self, secret: str) -> dict[str, Any]:
        """The message, after its signature was checked as standardwebhooks.com says."""
        key = base64.b64decode(secret.removeprefix("whsec_"))
        signed = f"{self.headers['webhook-id']}.{self.headers['webhook-timestamp']}.".encode() + self.body
        expected = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
        assert self.headers["webhook-signature"] == f"v1,{expected}"
        assert abs(self.received_at - int(self.headers["webhook-timestamp"])) < 300
        message: dict[str, Any] = json.loads(self.body)
        return message


class Receiver:
    """The received posts, and the next answers."""

    def __init__(self) -> None:
        self.posts: list[Post] = []
        self.statuses: list[int] = []
        """Of the next answers; then 204."""
        self.endless = self.dripping = False
        """Whether answers have a body, or a first line, that never ends."""
        self.url = ""
        self.answered: list[Post] = []
        self._may_answer = threading.Event()
        self._may_answer.set()
        self._held_path = ""

    def hold(self, path: str = "/") -> None:
        """Answer nothing that is posted below the path until told to."""
        self._held_path = path
        self._may_answer.clear()

    def let_go(self) -> None:
        """Answer again."""
        self._may_answer.set()

    def confirmed(self) -> set[str]:
        """The ids of the messages that were confirmed with 204."""
        return {post.headers["webhook-id"] for post in self.answered}

    def answer(self, handler: http.server.BaseHTTPRequestHandler, post: Post) -> None:
        """Answer one post."""
        self.posts.append(post)
        if post.path.startswith(self._held_path):
            self._may_answer.wait(60)
        if self.dripping:
            for _ in range(50):
                handler.wfile.write(b"H")
                time.sleep(0.05)
            return
        status = self.statuses.pop(0) if self.statuses else 204
        handler.send_response(status)
        handler.send_header("Location", f"{self.url}elsewhere")
        handler.send_header("Content-Length", str(2**40) if self.endless else "0")
        handler.end_headers()
        if status == 204:
            self.answered.append(post)


@contextmanager
def receiving() -> Iterator[Receiver]:
    """A receiver, until the block ends."""
    receiver = Receiver()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            receiver.answer(self, Post(path=self.path, headers=headers, body=body))

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    class Server(http.server.ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: object, client_address: object) -> None:
            """Whoever posted may have been killed meanwhile."""

    server = Server(("127.0.0.1", 0), Handler)
    receiver.url = f"http://127.0.0.1:{server.server_port}/"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        receiver.let_go()
        server.shutdown()
        server.server_close()
        thread.join(5)
