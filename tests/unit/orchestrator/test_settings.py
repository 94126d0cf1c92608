"""A misspelt setting is named, with the one that was meant."""

import pytest
from pydantic import ValidationError

from orchestrator.settings import OTHER_VARIABLES, Settings, unknown_variables


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
