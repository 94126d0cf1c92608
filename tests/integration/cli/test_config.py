"""`doctor --settings` through the command line, and what it says of settings that cannot be understood."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from api.cli import main

RUNNER = CliRunner()


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_every_setting_says_its_value_and_where_it_is_from(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ADAPM_BENCH_DATABASE_URL", "postgresql://bench:secret@db/bench")
    monkeypatch.setenv("ADAPM_BENCH_KEY", "secret")
    monkeypatch.delenv("ADAPM_BENCH_URL", raising=False)
    Path("adapm-bench.toml").write_text("slots = 3\n")
    shown = RUNNER.invoke(main, ["doctor", "--settings", "--json"])
    settings = {setting["name"]: (setting["value"], setting["source"]) for setting in json.loads(shown.output)}
    assert settings["database_url"] == ("postgresql://bench:***@db/bench", "ADAPM_BENCH_DATABASE_URL")
    assert settings["slots"] == (3, "slots in adapm-bench.toml")
    assert settings["port"] == (8321, "default")
    assert settings["url"] == (None, "default")
    assert settings["key"] == ("***", "ADAPM_BENCH_KEY")
    assert settings["own_optimizers"] == (None, "default")
    assert "secret" not in shown.output + RUNNER.invoke(main, ["doctor", "--settings"]).output
