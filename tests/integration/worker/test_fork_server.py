"""The fork server with real processes: who is forked, what ends whom, and what is refused."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from orchestrator.dispatch import ray_session
from tests.factories.dataset import prepare_made_dataset
from tests.factories.waiting import until
from tests.fakes.attempt_service import TOKEN, AttemptService, made_assignment
from worker import fork_server
from worker.fork_server import ForkRequest, ForkServerError, execute_in_fork
from worker.records.result import Result

ASK = """
import sys
from worker.fork_server import ForkRequest, execute_in_fork
url, token = sys.argv[1:]
print(execute_in_fork(ForkRequest(service_url=url, run_id="r1", attempt=1, token=token, gpus=0)), flush=True)
"""
"""The script of an actor."""
OWN = """
import subprocess, sys
asking = subprocess.Popen([sys.executable, "-c", *sys.argv[1:]])
print(asking.pid, flush=True)
asking.wait()
"""
"""Stands for the raylet of one actor."""

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Yield the folder of this file's servers, which they share; they end with it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(tmp_path_factory.mktemp("t")))
        patch.setattr("tempfile.tempdir", None)
        yield fork_server._address().parent
        for server in servers_of(os.getpid()):
            server.kill()


def servers_of(owner: int) -> list[psutil.Process]:
    """Return the servers that children of that process started."""
    servers = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            command = process.cmdline()
            if "worker.fork_server" in command and command[-1] == str(owner) and process.ppid() != os.getpid():
                servers.append(process)
    parents = {process.ppid() for process in servers}
    return [process for process in servers if process.pid in parents] or servers


def asking(url: str, token: str = TOKEN) -> "subprocess.Popen[str]":
    """An actor that waits for its attempt."""
    return subprocess.Popen([sys.executable, "-c", ASK, url, token], stdout=subprocess.PIPE, text=True)


def attempts_of(owner: int) -> list[psutil.Process]:
    """Return the forked processes, in the order of their starts."""
    attempts = [process for server in servers_of(owner) for process in server.children()]
    return sorted(attempts, key=psutil.Process.create_time)


def test_two_attempts_train_in_forks_of_one_process(tmp_path: Path) -> None:
    """And each is the process that it would be by itself: its environment, its folder, its memory."""
    prepare_made_dataset(tmp_path / "datasets")
    assignment = made_assignment(tmp_path / "run", tmp_path / "datasets")
    results, servers = [], []
    for _ in range(2):
        with AttemptService(assignment) as service, asking(service.url) as actor:
            assert actor.communicate()[0] == "succeeded\n"
            assert isinstance(service.ending, Result)
            results.append(service.ending)
        servers.append([server.pid for server in servers_of(os.getpid())])
    assert servers[0] == servers[1] and len(servers[0]) == 1
    first, second = results
    assert first.final_val_loss == second.final_val_loss
    assert first.peak_memory.host_rss_bytes == pytest.approx(second.peak_memory.host_rss_bytes, rel=0.1)


def test_an_attempt_ends_with_its_actor(silent: str) -> None:
    """Which the scheduler kills where a run hangs: no process trains on for nobody."""
    with asking(silent) as actor, asking(silent) as other:
        until(lambda: len(attempts_of(os.getpid())) == 2, "both have been forked")
        first, second = attempts_of(os.getpid())
        actor.kill()
        until(lambda: len(attempts_of(os.getpid())) == 1, "one has ended")
        (survivor,) = attempts_of(os.getpid())
        other.send_signal(signal.SIGTERM)  # which goes to the attempt; before its first step that ends it
        assert "(SIGTERM)" in other.communicate()[0]
    assert survivor in (first, second)


def test_a_killed_attempt_is_lost_and_so_are_all_of_a_killed_server(silent: str) -> None:
    """The next actor starts another server."""
    with asking(silent) as actor:
        until(lambda: attempts_of(os.getpid()), "it has been forked")
        attempts_of(os.getpid())[0].kill()
        assert "(SIGKILL)" in actor.communicate()[0]
    with asking(silent) as actor:
        until(lambda: attempts_of(os.getpid()), "it has been forked")
        (attempt,), (server,) = attempts_of(os.getpid()), servers_of(os.getpid())
        server.kill()
        assert actor.communicate()[0].startswith("lost: the fork server")
        until(lambda: not attempt.is_running(), "it has ended, too")


def test_a_server_ends_with_its_raylet(silent: str, folder: Path, tmp_path: Path) -> None:
    """And leaves nothing behind. Who ends a dead Ray at once, with all that writes in its folder, ends it, too."""
    command = [sys.executable, "-c", OWN, ASK, silent, TOKEN]
    with (
        (tmp_path / "raylet.err").open("w") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as owner,
    ):
        assert owner.stdout is not None
        actor = psutil.Process(int(owner.stdout.readline()))
        until(lambda: attempts_of(owner.pid), "it has been forked")
        processes = [actor, *servers_of(owner.pid), *attempts_of(owner.pid)]
        assert {*processes} <= ray_session._writers(tmp_path)
        owner.kill()
    until(
        lambda: not any(process.is_running() and process.status() != "zombie" for process in processes),
        "all have ended",
    )
    assert not [path for path in folder.iterdir() if path.name.startswith(f"{owner.pid}-")]


def test_a_folder_that_others_may_write_to_is_not_trusted(folder: Path) -> None:
    """Whoever reaches the socket of a server has attempts carried out as its user."""
    folder.chmod(0o777)
    try:
        with pytest.raises(ForkServerError, match="is not a folder of this user alone"):
            execute_in_fork(ForkRequest(service_url="", run_id="r1", attempt=1, token="", gpus=0))
    finally:
        folder.chmod(0o700)
