"""The first source that has a value wins, and every value can say where it is from; a misspelt setting is named, with
the one that was meant."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from orchestrator import settings as setting_sources
from orchestrator.errors import SettingsError
from orchestrator.settings import OTHER_VARIABLES, Settings, setting_source, unknown_variables


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


def test_every_setting_is_known_however_it_is_written() -> None:
    names = [f"ADAPM_BENCH_{name.upper()}" for name in Settings.model_fields]
    assert unknown_variables([*names, *OTHER_VARIABLES, "adapm_bench_port", "PATH", "ADAPM"]) == ()


def test_a_misspelt_setting_is_named_with_the_nearest_one() -> None:
    (first, second) = unknown_variables(["ADAPM_BENCH_PROT", "HOME", "ADAPM_BENCH_MLFLOW_URL"])
    assert first.startswith("ADAPM_BENCH_MLFLOW_URL ") and "ADAPM_BENCH_MLFLOW_URI?" in first
    assert second.startswith("ADAPM_BENCH_PROT ") and "ADAPM_BENCH_PORT?" in second


def test_remote_folders_are_urls_without_secrets() -> None:
    settings = Settings(checkpoint_url="s3://bucket/bench/", dataset_url=None)
    assert settings.storage().run_url("r1") == "s3://bucket/bench/r1"
    assert Settings().storage().run_url("r1") is None
    with pytest.raises(ValidationError, match="put keys into the environment"):
        Settings(dataset_url="s3://key:secret@bucket")
