"""The first source that has a value wins, and every value can say where it is from."""

from pathlib import Path

import pytest

from orchestrator import settings as setting_sources
from orchestrator.errors import SettingsError
from orchestrator.settings import Settings, setting_source


@pytest.fixture(autouse=True)
def secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in, and one of secrets."""
    folder = tmp_path / "secrets"
    folder.mkdir()
    monkeypatch.setattr(setting_sources, "SECRETS_FOLDER", folder)
    monkeypatch.chdir(tmp_path)
    return folder


def test_the_environment_wins_over_secrets_and_they_over_the_file(secrets: Path, monkeypatch: pytest.MonkeyPatch):
    Path("adapm-bench.toml").write_text('port = 1\nslots = 1\nhost = "::1"\n')
    (secrets / "adapm_bench_port").write_text("2\n")
    (secrets / "adapm_bench_slots").write_text("2\n")
    monkeypatch.setenv("ADAPM_BENCH_PORT", "3")
    settings = Settings()
    assert (settings.port, settings.slots, settings.host, settings.ray_address) == (3, 2, "::1", None)
    assert [setting_source(name) for name in ("port", "slots", "host", "ray_address")] == [
        "ADAPM_BENCH_PORT",
        str(secrets / "adapm_bench_slots"),
        "host in adapm-bench.toml",
        None,
    ]


def test_the_file_may_lie_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "other.toml").write_text('data_folder = "/data"\n')
    monkeypatch.setenv("ADAPM_BENCH_CONFIG", str(tmp_path / "other.toml"))
    assert Settings().data_folder == Path("/data")


def test_a_file_that_is_named_and_not_there_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ADAPM_BENCH_CONFIG", "gone.toml")
    with pytest.raises(SettingsError, match=r"ADAPM_BENCH_CONFIG=gone.toml: there is no such file"):
        Settings()


def test_a_secret_that_is_no_text_is_refused_with_its_setting_and_folder(secrets: Path):
    (secrets / "adapm_bench_port").write_bytes(b"\xff")
    with pytest.raises(SettingsError, match=f'"port".*let this user read every file in {secrets}'):
        Settings()
