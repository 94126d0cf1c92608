"""A port that is taken is refused with the name of who has it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from api.processes.address import ServiceError, listen

HOST = "127.0.0.1"


def test_another_service_is_named_by_its_data_folder(tmp_path: Path) -> None:
    with listen(HOST, 0) as listener:
        port, descriptor = listener.getsockname()[1], listener.fileno()
        command = [sys.executable, "-m", "api.cli", "api", "--socket", str(descriptor), "--data", str(tmp_path)]
        other = subprocess.Popen(command, pass_fds=(descriptor,), stderr=subprocess.DEVNULL)
    try:
        with pytest.raises(ServiceError, match=f"in use by the adapm-bench service on {tmp_path}; choose another port"):
            listen(HOST, port)
    finally:
        other.kill()
        other.wait()


def test_another_program_is_named_by_its_process() -> None:
    with listen(HOST, 0) as listener, pytest.raises(ServiceError, match=f"in use by process {os.getpid()}, "):
        listen(HOST, listener.getsockname()[1])


def test_an_address_of_another_machine_is_nobodys() -> None:
    with pytest.raises(ServiceError, match=r"cannot listen on 192\.0\.2\.1 port 0: [^;]*assign[^;]*; choose"):
        listen("192.0.2.1", 0)
