"""The comparison that `adapm-bench demo` runs is a fair one."""

import sys
from pathlib import Path

import pytest

from api.cli.console import program
from api.cli.experiments.demo import print_next_steps


def test_commands_to_copy_begin_as_the_shell_finds_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`make demo` calls a program of an environment that nobody has activated."""
    monkeypatch.chdir(tmp_path)
    called = Path(".venv/bin/adapm-bench")
    called.parent.mkdir(parents=True)
    called.write_text("#!/bin/sh\n")
    called.chmod(0o755)
    monkeypatch.setattr(sys, "argv", [str(called), "demo"])
    monkeypatch.setenv("PATH", "/usr/bin")
    assert program() == ".venv/bin/adapm-bench"
    monkeypatch.setenv("PATH", str(called.parent.absolute()))
    assert program() == "adapm-bench"
    monkeypatch.setattr(sys, "argv", ["-m"])
    assert program() == "adapm-bench"


def test_next_steps_reach_the_service(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("api.cli.experiments.demo.program", lambda: ".venv/bin/adapm-bench")
    print_next_steps("k3v9", ".venv/bin/adapm-bench up --data x --port 9", " --url http://127.0.0.1:9")
    commands = [line.split("  ")[1] for line in capsys.readouterr().out.splitlines()[2:]]
    assert commands[:3] == [
        ".venv/bin/adapm-bench up --data x --port 9",
        ".venv/bin/adapm-bench compare k3v9 --json --url http://127.0.0.1:9",
        ".venv/bin/adapm-bench show k3v9 --url http://127.0.0.1:9",
    ]
    assert all(command.startswith(".venv/bin/adapm-bench ") for command in commands)
    print_next_steps("k3v9", "", "")
    assert "bench up" not in capsys.readouterr().out, "one runs already"
