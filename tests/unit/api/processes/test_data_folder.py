"""A data folder has one service, whatever way the earlier one ended; that service's port, and its logs' length."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from api.processes.address import ServiceError, listen
from api.processes.data_folder import keep_private, lock_data_folder, read_note, remove_note, write_note
from api.processes.supervisor import rotate
from orchestrator.errors import DataFolderError

HOLD = (
    "import sys; from pathlib import Path; from api.processes.data_folder import *; "
    "lock_data_folder(Path(sys.argv[1]), print)"
)


def test_second_service_is_told_who_holds_the_folder(tmp_path: Path) -> None:
    """The error names the process, its address and the way out; the first one's lock stays."""
    descriptor = lock_data_folder(tmp_path, print)
    write_note(tmp_path, "http://127.0.0.1:1")
    with pytest.raises(DataFolderError, match=rf"process {os.getpid()}, answering at http://127.0.0.1:1.*--data"):
        lock_data_folder(tmp_path, print)
    os.close(descriptor)
    remove_note(tmp_path)


def test_lock_lasts_as_long_as_any_process_of_the_service(tmp_path: Path) -> None:
    """A killed holder's children keep the lock; who comes next waits for them, says so, and then has it."""
    hold = HOLD.replace("lock_data_folder(", "lock = lock_data_folder(")
    code = f"{hold}\nimport subprocess\nsubprocess.Popen(['sleep', '1'], pass_fds=(lock,))"
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, close_fds=True)
    messages: list[str] = []
    os.close(lock_data_folder(tmp_path, messages.append))
    assert messages == [f"waiting for the processes of an earlier service on {tmp_path} to end"]


@pytest.mark.parametrize(("umask", "mode"), [(0o077, 0o700), (0o027, 0o750)])
def test_a_folder_that_was_open_is_closed(tmp_path: Path, umask: int, mode: int) -> None:
    folder = tmp_path / "data"
    (folder / "runs").mkdir(parents=True)
    (folder / "bench.sqlite3").touch()
    (folder / "elsewhere").symlink_to(tmp_path / "other")
    (tmp_path / "other").touch(0o644)
    for path in (folder, folder / "runs", folder / "bench.sqlite3"):
        path.chmod(0o777)
    keep_private(folder, umask)
    assert [stat.S_IMODE(path.stat().st_mode) for path in (folder, folder / "runs", folder / "bench.sqlite3")] == [
        mode,
        mode,
        mode,
    ]
    assert (tmp_path / "other").stat().st_mode & 0o044, "what a link leads to is not ours"
    keep_private(tmp_path / "new", umask)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == mode


def test_folder_that_cannot_be_written_is_one_clear_error(tmp_path: Path) -> None:
    """The error names the folder, the reason and the way out."""
    (tmp_path / "file").touch()
    with pytest.raises(DataFolderError, match=r"file/data cannot be used: Not a directory; .*--data"):
        lock_data_folder(tmp_path / "file" / "data", print)
    with pytest.raises(DataFolderError, match=r"file is a file; .*--data"):
        lock_data_folder(tmp_path / "file", print)


def test_note_of_a_dead_service_is_not_believed(tmp_path: Path) -> None:
    """A note counts while its process holds the lock: not when it has ended, nor when another has its number."""
    subprocess.run(
        [sys.executable, "-c", f"{HOLD}; write_note(Path(sys.argv[1]), 'http://x')", str(tmp_path)], check=True
    )
    assert read_note(tmp_path) is None
    parts = (tmp_path / "lock").read_text().split()
    (tmp_path / "lock").write_text(f"{os.getpid()} {parts[1]}")
    (tmp_path / "service.json").write_text(f'{{"url": "http://x", "pid": {os.getpid()}}}')
    assert read_note(tmp_path) is None
    (tmp_path / "service.json").write_text("{")
    assert read_note(tmp_path) is None


def test_a_long_log_moves_aside_and_its_writer_goes_on_in_the_same_file(tmp_path: Path) -> None:
    path = tmp_path / "api.log"
    with path.open("a", buffering=1) as writer:
        for number in range(6):
            writer.write(f"{number}" * 100 + "\n")
            rotate(path, most_bytes=50, kept=3)
        writer.write("new\n")
    assert path.read_text() == "new\n"
    digit_by_log = {log.name: log.read_text()[0] for log in tmp_path.glob("api.log.*")}
    assert digit_by_log == {"api.log.1": "5", "api.log.2": "4", "api.log.3": "3"}


def test_a_short_log_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "api.log"
    path.write_text("short\n")
    rotate(path)
    assert [file.name for file in tmp_path.iterdir()] == ["api.log"]


def test_a_port_that_is_taken_and_an_address_of_another_machine_are_refused() -> None:
    with listen("127.0.0.1", 0) as listener, pytest.raises(ServiceError, match="in use; choose another port"):
        listen("127.0.0.1", listener.getsockname()[1])
    with pytest.raises(ServiceError, match=r"cannot listen on 192\.0\.2\.1 port 0: [^;]*assign[^;]*; choose"):
        listen("192.0.2.1", 0)
