"""An S3 server on loopback (moto's), which can be away for a while: what is stored outlives its absence."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from moto.server import ThreadedMotoServer

from worker.remote.folder import RemoteFolder

BUCKET = "bench"


@dataclass
class S3Server:
    """An S3 server whose address stays the same when it is stopped and started again."""

    port: int = 0
    _server: ThreadedMotoServer | None = None

    def start(self) -> None:
        """Answer."""
        logging.getLogger("werkzeug").setLevel(logging.ERROR)  # a line a request
        self._server = ThreadedMotoServer(ip_address="127.0.0.1", port=self.port)
        self._server.start()
        self.port = self._server.get_host_and_port()[1]

    def stop(self) -> None:
        """Refuse connections."""
        if self._server is not None:
            self._server.stop()
            self._server = None

    @property
    def variables(self) -> dict[str, str]:
        """The environment in which programs find it and are let in."""
        return {
            "AWS_ENDPOINT_URL_S3": f"http://127.0.0.1:{self.port}",
            "AWS_ACCESS_KEY_ID": "a-key",
            "AWS_SECRET_ACCESS_KEY": "a-secret",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }


@contextmanager
def s3_server() -> Iterator[S3Server]:
    """A server with an empty bucket, and an environment that leads to it."""
    server = S3Server()
    server.start()
    try:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in server.variables.items():
                patch.setenv(name, value)
            files, _ = RemoteFolder(f"s3://{BUCKET}").file_system
            if not files.exists(BUCKET):
                files.mkdir(BUCKET)
            yield server
    finally:
        server.stop()
