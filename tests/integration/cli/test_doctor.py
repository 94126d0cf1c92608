"""`adapm-bench doctor` as its users see it: each fault is produced, found, and told with the way out of it."""

import errno
import fcntl
import json
import os
import platform
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from typer.testing import CliRunner

from api.cli.app import main
from api.cli.doctor import machine, services
from api.cli.doctor.check import Check
from api.cli.doctor.doctor import Examination, examine
from orchestrator.dispatch import ray_session
from orchestrator.settings import Settings
from tests.architecture.tree import REPOSITORY
from tests.fakes.odd_examinations import ODD_ONES


def test_what_hangs_crashes_or_stumbles_is_a_finding_and_the_round_goes_on():
    seconds = {"hang": 0.5, "crash": 60.0, "stumble": 60.0}
    odd = [Examination(name=each.__name__, function=each, seconds=seconds[each.__name__]) for each in ODD_ONES]
    found = list(examine(Settings(), [*odd, Examination(name="Python", function=machine.python)]))
    assert [(check.name, check.ok) for check in found] == [
        ("hang", False),
        ("crash", False),
        ("stumble", False),
        ("Python", True),
    ]
    assert found[0].found.startswith("no answer within")
    assert "SIGSEGV" in found[1].found
    assert found[2].found == "KeyError: 'what nobody thought of'"


def bench(folder: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """The doctor in a process of its own, with no setting but these."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("ADAPM_BENCH_")}
    environment = kept | {"PYTHONPATH": str(REPOSITORY)} | variables
    command = [sys.executable, "-m", "api.cli", "doctor", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment, check=False)


@pytest.mark.slow
def test_everything_wrong_at_once_is_told_one_by_one(tmp_path: Path):
    (tmp_path / "file").write_text("")
    (tmp_path / ("long" * 10)).mkdir()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        result = bench(
            tmp_path,
            "--json",
            ADAPM_BENCH_DATA_FOLDER=str(tmp_path / "file" / "data"),
            ADAPM_BENCH_DATABASE_URL="nonsense",
            ADAPM_BENCH_MLFLOW_URI="http://127.0.0.1:9",
            ADAPM_BENCH_PORT=port,
            TMPDIR=str(tmp_path / ("long" * 10)),
        )
    found = {check["name"]: check for check in json.loads(result.stdout)}
    assert (result.returncode, result.stderr) == (1, "")
    assert {name: check["ok"] for name, check in found.items() if name not in ("NVML", "GPU")} == {
        "settings": True,
        "Python": True,
        "data folder": False,
        "service": False,
        "database": False,
        "storage": True,
        "MLflow": False,
        "PyTorch": True,
        "Ray": True,  # a folder for temporary files that is too long for sockets is passed over for /tmp
    }
    assert all(check["way_out"] for check in found.values() if not check["ok"])
    assert f"process {os.getpid()}, " in found["service"]["found"]
    assert "ADAPM_BENCH_DATABASE_URL" in found["settings"]["found"]


def test_settings_that_cannot_be_understood_are_each_a_line(tmp_path: Path):
    result = bench(tmp_path, ADAPM_BENCH_PORT="http", ADAPM_BENCH_FREE_BYTES="-1")
    assert (result.returncode, result.stderr) == (1, "")
    assert "ADAPM_BENCH_PORT=http" in result.stdout
    assert "ADAPM_BENCH_FREE_BYTES=-1" in result.stdout


def test_a_misspelt_setting_and_a_file_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("api.cli.doctor.doctor.EXAMINATIONS", ())
    Path("adapm-bench.toml").write_text("port = \n")
    result = CliRunner().invoke(main, ["doctor", "--json"])
    assert result.exit_code == 1
    (check,) = json.loads(result.stdout)
    assert check["found"].startswith("adapm-bench.toml")
    monkeypatch.setenv("ADAPM_BENCH_PROT", "1")
    result = CliRunner().invoke(main, ["doctor"])
    assert result.exit_code == 1
    assert "ADAPM_BENCH_PROT" in result.stdout
    assert "ADAPM_BENCH_PORT?" in result.stdout


def told(checks: Iterator[Check], name: str) -> Check:
    """The check of that name."""
    return next(check for check in checks if check.name == name)


def test_a_disk_below_its_floor_a_quota_and_a_file_system_without_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    settings = Settings(data_folder=tmp_path, free_bytes=2**53)
    check = told(machine.data_folder(settings), "disk")
    assert not check.ok
    assert "ADAPM_BENCH_FREE_BYTES" in check.way_out
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        check = told(machine.data_folder(settings), "disk")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "1 MiB" in check.found
    assert "quota" in check.way_out
    sound = Settings(data_folder=tmp_path / "made" / "later", free_bytes=0)
    assert [(check.name, check.ok) for check in machine.data_folder(sound)] == [
        ("data folder", True),
        ("disk", True),
        ("locks", True),
    ]
    assert list(tmp_path.iterdir()) == []

    def without_locks(*_arguments: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", without_locks)
    assert not told(machine.data_folder(sound), "locks").ok
    monkeypatch.setattr(fcntl, "flock", lambda *_: None)
    assert "lock" in told(machine.data_folder(sound), "locks").found


@contextmanager
def answering(status: int, text: str) -> Iterator[str]:
    """The URL of a server that answers everything so."""

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: Any) -> None:
            """Nothing to the terminal."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize(
    ("status", "text", "ok", "words"),
    [
        (200, "3.17.2", True, ""),
        (200, "3.18.0", True, "one version"),
        (200, "2.9.1", False, "run a server of MLflow 3"),
        (200, "<html>a proxy's page</html>", False, "start it"),
        (404, "3.17.2", False, "start it"),
    ],
)
def test_servers_of_mlflow(status: int, text: str, ok: bool, words: str):
    with answering(status, text) as url:
        check = services.mlflow_server(url, "3.17.2")
    assert check.ok is ok
    assert words in check.way_out


def test_something_else_on_the_services_port(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("ADAPM_BENCH_URL", raising=False)
    with answering(200, "hello") as url:
        port = int(url.rpartition(":")[2])
        (check,) = machine.service(Settings(port=port))
        monkeypatch.setenv("ADAPM_BENCH_URL", url)
        (named,) = machine.service(Settings())
    assert not named.ok
    assert f"process {os.getpid()}" in named.way_out
    assert not check.ok
    (gone,) = machine.service(Settings())
    assert "unset ADAPM_BENCH_URL" in gone.way_out


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("6379", "host:port"),
        ("no-such-machine.invalid:6379", "correct the host"),
        ("127.0.0.1:{closed}", "ray start --head --port={closed}"),
    ],
)
def test_addresses_without_a_cluster(address: str, words: str):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody else takes the port, and nobody listens there
        closed = str(taken.getsockname()[1])
        check = services.cluster(address.replace("{closed}", closed), "2.60.0")
    assert not check.ok
    assert words.replace("{closed}", closed) in check.way_out


def test_an_embedded_ray_wants_short_paths_and_shared_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert services.embedded_ray("2.60.0").ok
    monkeypatch.setattr(services, "shared_memory_free_bytes", lambda: 64 * 2**20)
    assert "--shm-size" in services.embedded_ray("2.60.0").way_out
    monkeypatch.setattr(ray_session, "_bases", lambda: (tmp_path / ("long" * 10),))
    check = services.embedded_ray("2.60.0")
    assert not check.ok
    assert "TMPDIR" in check.way_out


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, ""),
        ({"ray_version": "2.1.0"}, "pip install ray==2.1.0"),
        ({"python_version": "3.9.1"}, "one version of Python"),
        (RuntimeError("Unauthenticated: wrong token"), "RAY_AUTH_TOKEN_PATH"),
    ],
)
def test_clusters_that_answer(change: dict[str, str] | Exception, words: str, monkeypatch: pytest.MonkeyPatch):
    """What Ray's own client is told stands for the cluster; somebody does listen."""

    def asked(_address: str) -> tuple[dict[str, str], int]:
        if isinstance(change, Exception):
            raise change
        return {"ray_version": "2.60.0", "python_version": platform.python_version()} | change, 3

    monkeypatch.setattr(services, "_ask_cluster", asked)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        check = services.cluster(f"127.0.0.1:{listener.getsockname()[1]}", "2.60.0")
    assert check.ok is not bool(words)
    assert words in check.way_out
    assert check.ok is False or "3 nodes" in check.found
