"""`adapm-bench doctor` as its users see it: each fault is produced, found, and shown with the way out."""

import fcntl
import json
import os
import resource
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pynvml
import pytest
import sqlalchemy as sa
from typer.testing import CliRunner

from api.cli.admin import checks
from api.cli.admin.checks import FaultError
from api.cli.admin.doctor import examine
from api.cli.app import main
from api.client.client import ClientError
from orchestrator.dispatch import ray_session
from orchestrator.errors import ClusterError, StoreError
from orchestrator.settings import Settings
from orchestrator.store import database as store_database
from orchestrator.store.database import Database, newest_migration
from tests.architecture.tree import REPOSITORY
from tests.factories.answering import answering
from tests.factories.stores import PostgresqlServer


def bench(folder: Path, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """The doctor in a process of its own, with no setting but these."""
    other_variables = {name: text for name, text in os.environ.items() if not name.startswith("ADAPM_BENCH_")}
    environment = other_variables | {"PYTHONPATH": str(REPOSITORY)} | variables
    command = [sys.executable, "-m", "api.cli", "doctor", *options]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment, check=False)


def test_a_check_that_hangs_crashes_or_raises_is_a_finding_and_the_others_go_on():
    odd_checks = "tests.fakes.odd_checks"
    findings = list(examine(["crash", "stumble", "chatter"], odd_checks))
    assert [(check.name, check.ok) for check in findings] == [("crash", False), ("stumble", False), ("chatter", True)]
    assert "SIGSEGV" in findings[0].found
    assert [check.found for check in findings[1:]] == ["ValueError: first line", "sound"]
    (hung,) = examine(["hang"], odd_checks, seconds=0.5)
    assert not hung.ok and hung.found.startswith("no answer within")


@pytest.mark.slow
def test_every_fault_has_a_check_of_its_own(tmp_path: Path):
    (tmp_path / "file").write_text("")
    (tmp_path / ("long" * 10)).mkdir()
    with socket.create_server(("127.0.0.1", 0)) as server:
        result = bench(
            tmp_path,
            "--json",
            ADAPM_BENCH_DATA_FOLDER=str(tmp_path / "file" / "data"),
            ADAPM_BENCH_DATABASE_URL="nonsense",
            ADAPM_BENCH_MLFLOW_URI="http://127.0.0.1:9",
            ADAPM_BENCH_PORT=str(server.getsockname()[1]),
            TMPDIR=str(tmp_path / ("long" * 10)),
        )
    check_by_name = {check["name"]: check for check in json.loads(result.stdout)}
    assert (result.returncode, result.stderr) == (1, "")
    assert {name: check["ok"] for name, check in check_by_name.items() if name != "NVML"} == {
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
    assert {name for name, check in check_by_name.items() if check["way_out"]} == {
        name for name, check in check_by_name.items() if not check["ok"]
    }
    assert "in use" in check_by_name["service"]["found"]
    assert "ADAPM_BENCH_DATABASE_URL" in check_by_name["settings"]["found"]


def test_settings_that_cannot_be_understood_are_each_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ADAPM_BENCH_PORT", "http")
    monkeypatch.setenv("ADAPM_BENCH_FREE_BYTES", "-1")
    result = CliRunner().invoke(main, ["doctor"])
    assert (result.exit_code, result.stderr) == (1, "")
    assert "ADAPM_BENCH_PORT=http" in result.stdout
    assert "ADAPM_BENCH_FREE_BYTES=-1" in result.stdout


def test_every_setting_says_its_value_and_where_it_is_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ADAPM_BENCH_DATABASE_URL", "postgresql://bench:secret@db/bench")
    monkeypatch.setenv("ADAPM_BENCH_KEY", "secret")
    monkeypatch.delenv("ADAPM_BENCH_URL", raising=False)
    Path("adapm-bench.toml").write_text("slots = 3\n")
    shown = CliRunner().invoke(main, ["doctor", "--settings", "--json"])
    settings = {setting["name"]: (setting["value"], setting["source"]) for setting in json.loads(shown.output)}
    assert settings["database_url"] == ("postgresql://bench:***@db/bench", "ADAPM_BENCH_DATABASE_URL")
    assert settings["slots"] == (3, "slots in adapm-bench.toml")
    assert settings["port"] == (8321, "default")
    assert settings["url"] == settings["own_optimizers"] == (None, "default")
    assert settings["key"] == ("***", "ADAPM_BENCH_KEY")
    assert "secret" not in shown.output + CliRunner().invoke(main, ["doctor", "--settings"]).output


def test_a_misspelt_setting_and_a_file_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
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


@contextmanager
def at_most(file_bytes: int) -> Iterator[None]:
    """Limit the length of this process's files: like a quota or a full disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_disk_below_its_floor_a_quota_and_a_file_system_without_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with pytest.raises(FaultError, match="ADAPM_BENCH_FREE_BYTES"):
        checks.data_folder(Settings(data_folder=tmp_path, free_bytes=2**53))
    sound = Settings(data_folder=tmp_path / "made" / "later", free_bytes=0)
    with at_most(1000), pytest.raises(OSError, match="too large"):
        checks.data_folder(sound)
    assert "will be made" in checks.data_folder(sound)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(fcntl, "flock", lambda *_: None)
    with pytest.raises(FaultError, match="one lock to two"):
        checks.data_folder(sound)


def test_mlflow_is_asked_for_its_version():
    with answering(lambda *_: (200, "3.17.2\n")) as url:
        assert checks.mlflow(Settings(mlflow_uri=url)) == f"{url}, MLflow 3.17.2"
    for answer in ((200, "<html>a proxy's page</html>"), (404, "3.17.2")):
        with answering(lambda *_, answer=answer: answer) as url, pytest.raises(FaultError, match="not as MLflow"):
            checks.mlflow(Settings(mlflow_uri=url))


def test_a_server_that_is_not_the_service(monkeypatch: pytest.MonkeyPatch):
    with answering(lambda *_: (200, "hello")) as url:
        monkeypatch.setenv("ADAPM_BENCH_URL", url)
        with pytest.raises(ClientError):
            checks.service(Settings())
    with pytest.raises(ClientError):
        checks.service(Settings())


@pytest.mark.parametrize(
    ("address", "fault"),
    [("6379", OSError), ("no-such-machine.invalid:6379", OSError), ("127.0.0.1:{closed}", ConnectionRefusedError)],
)
def test_addresses_without_a_cluster(address: str, fault: type[Exception]):
    with socket.socket() as bound_socket:
        bound_socket.bind(("127.0.0.1", 0))  # nobody else takes the port, and nobody listens there
        closed = str(bound_socket.getsockname()[1])
        with pytest.raises(fault):
            checks.ray(Settings(ray_address=address.replace("{closed}", closed)))


def test_an_embedded_ray_needs_a_short_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert checks.ray(Settings())
    monkeypatch.setattr(ray_session, "_bases", lambda: (tmp_path / ("long" * 10),))
    with pytest.raises(ClusterError, match="TMPDIR"):
        checks.ray(Settings())


def test_a_driver_that_fails_is_a_fault_only_beside_devices(monkeypatch: pytest.MonkeyPatch):
    def mismatch() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH)

    monkeypatch.setattr(pynvml, "nvmlInit", mismatch)
    monkeypatch.setattr(checks, "_has_nvidia_devices", lambda: True)
    with pytest.raises(pynvml.NVMLError):
        checks.nvml(Settings())
    monkeypatch.setattr(checks, "_has_nvidia_devices", lambda: False)
    assert checks.nvml(Settings()) == "no NVIDIA GPU on this machine"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A database of today's schema."""
    path = tmp_path / "bench.sqlite3"
    with closing(Database(f"sqlite:///{path}")) as database:
        database.migrate()
    return path


def look(address: Path | str) -> str:
    """Return the check's result for that file or URL."""
    return checks.database(Settings(database_url=address if isinstance(address, str) else f"sqlite:///{address}"))


def test_a_sound_file_and_a_file_that_will_be_made(file: Path, tmp_path: Path):
    assert f"schema {newest_migration()}" in look(file)
    assert "will make" in look(tmp_path / "none.sqlite3")
    assert not (tmp_path / "none.sqlite3").exists()


def hold(file: Path) -> sqlite3.Connection:
    """Another process that writes."""
    connection = sqlite3.connect(file, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    return connection


def test_a_file_that_another_process_holds_or_that_may_not_grow(file: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(store_database, "BUSY_TIMEOUT_SECONDS", 0.05)
    with closing(hold(file)), pytest.raises(StoreError, match="locked"):
        look(file)
    with at_most(file_bytes=100), pytest.raises(StoreError):
        look(file)
    assert "takes writes" in look(file)


def set_revision(file: Path, revision: str) -> None:
    """Make the schema one of another version."""
    with closing(Database(f"sqlite:///{file}")) as database, database.writing() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = :it"), {"it": revision})


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda file: file.write_text("a text that is longer than a database's header" * 20), "not a database"),
        (lambda file: file.write_bytes(b""), "missing"),
        (lambda file: set_revision(file, "9999"), "9999"),
    ],
)
def test_files_that_this_version_cannot_use(file: Path, spoil: Callable[[Path], object], words: str):
    spoil(file)
    with pytest.raises((StoreError, FaultError), match=words):
        look(file)


@pytest.mark.postgres
def test_a_server_that_answers(postgresql: PostgresqlServer, monkeypatch: pytest.MonkeyPatch):
    """Without tables; as it should; with a clock that is off; without the database."""
    name = postgresql.create_database()
    with pytest.raises(FaultError, match="missing"):
        look(postgresql.url(name))
    with postgresql.open(name) as database:
        database.migrate()
        assert "takes writes" in look(postgresql.url(name))
        with monkeypatch.context() as skewed:
            skewed.setattr(Database, "read_clock", lambda *_: 0.0)
            with pytest.raises(FaultError, match="clock"):
                look(postgresql.url(name))
    with pytest.raises(StoreError, match="does not exist"):
        look(postgresql.url("nowhere"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
def test_a_file_that_may_not_be_written(file: Path):
    file.chmod(0o444)
    with pytest.raises(StoreError):
        look(file)
