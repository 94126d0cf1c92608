"""Every reader makes the same study of what each tracker's own library wrote of it, and ends in no other way than by
a `SourceError` where a file is damaged."""

import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from api.imports.mapping import MappedRun, apply_mapping, propose_mapping
from api.imports.readers import READERS, choose_reader
from api.imports.source import ReadRequest, SourceError, SourceRun
from orchestrator.external_runs import IMPORTED, ExternalState
from tests.sources.write import FILES, STEPS, study, write_mlflow_runs

STUDIES = ("csv", "tensorboard", "wandb", "trackio")
"""Whose files tell the same study."""


def read(source: str, *places: object) -> list[SourceRun]:
    return list(READERS[source].read(ReadRequest(places=[str(place) for place in places])))


def mapped(runs: list[SourceRun], source: str) -> list[MappedRun]:
    mapping = propose_mapping(runs, {}, {})
    return [apply_mapping(run, mapping, source, "a study") for run in runs]


def values(run: MappedRun, metric: str) -> dict[int, float]:
    return {point.step: point.metrics[metric] for point in run.points if metric in point.metrics}


def check_study(runs: list[MappedRun], *, shift: int = 0) -> None:
    """All that `study` says: who ran, with what, and every figure."""
    by_key = {(run.header.candidate, run.header.seed): run for run in runs}
    assert len(by_key) == len(runs) == 6 and len({run.run_id for run in runs}) == 6
    for name, config, points in study():
        run = by_key[config["optimizer"], config["seed"]]
        assert (run.header.experiment, run.header.lr, run.header.config["n_layer"]) == ("a study", config["lr"], 2)
        assert name in str(run.header.config[IMPORTED])
        for metric, later in (("val_loss", shift), ("train_loss", 0)):
            expected = {step + later: told[metric] for step, told in points}
            assert values(run, metric) == pytest.approx(expected, rel=1e-6), (
                f"{name} {metric}"
            )  # TensorBoard's are float32


@pytest.mark.parametrize("source", STUDIES)
def test_a_study_is_read_as_its_tracker_wrote_it(source: str) -> None:
    reader, places = choose_reader([str(FILES / source)])
    assert reader is READERS[source], "the files show by themselves what they are"
    runs = mapped(read(source, *places), source)
    check_study(runs, shift=1 if source == "csv" else 0)  # Lightning has a step of its own for each call
    again = mapped(read(source, *places), source)
    assert [run.run_id for run in again] == [run.run_id for run in runs]


def test_wandb_says_how_runs_ended_what_the_machine_did_and_what_is_no_number() -> None:
    runs = read("wandb", FILES / "wandb")
    assert {run.name for run in runs if run.state is ExternalState.FAILED} == {"muon-s3"}
    for run in runs:
        assert run.tags == ("fixture",) and run.facts["project"] == "a study" and run.facts["host"] == "a-host"
        assert run.facts["summary"]["best"] > 0 and set(run.not_numbers) == {"words"}
        names = {name for point in run.points for name in point.metrics}
        assert {"nested.norm", "system/memory_percent"} <= names and run.started_at > 1.7e9


def test_a_wandb_run_that_was_killed_is_one_that_has_not_ended(tmp_path: Path) -> None:
    (path,) = (FILES / "wandb").rglob("run-adamw-s1.wandb")
    whole = path.read_bytes()
    shown = []
    for size in (len(whole) // 2, len(whole) * 3 // 4, len(whole)):
        (tmp_path / path.name).write_bytes(whole[:size])
        (run,) = mapped(read("wandb", tmp_path), "wandb")
        shown.append((run.run_id, run.state, len(run.points)))
    assert len({run_id for run_id, _, _ in shown}) == 1, "it is the same run as it grows"
    assert [state for _, state, _ in shown] == [ExternalState.RUNNING] * 2 + [ExternalState.FINISHED]
    assert shown[0][2] < shown[1][2] <= shown[2][2]


def test_a_trainer_says_its_losses_and_its_folders_the_rest() -> None:
    runs = mapped(read("trainer_state", FILES / "trainer_state"), "trainer_state")
    assert {(run.header.candidate, run.header.lr, run.header.seed) for run in runs} == {
        (name, lr, seed) for name, lr in (("sgd", 0.05), ("adamw_torch", 0.1)) for seed in (1, 2)
    }
    for run in runs:
        assert [*values(run, "val_loss")] == [4, 8] and [*values(run, "loss")] == [2, 4, 6, 8]
        assert run.state is ExternalState.FINISHED and run.header.config["max_steps"] == 8


def test_a_checkpoint_in_the_middle_is_a_run_that_has_not_ended(tmp_path: Path) -> None:
    run_folder = FILES / "trainer_state" / "sgd-lr0.05-s1"
    shutil.copytree(run_folder / "checkpoint-4", tmp_path / run_folder.name / "checkpoint-4")
    (early,) = mapped(read("trainer_state", tmp_path), "trainer_state")
    shutil.copytree(run_folder / "checkpoint-8", tmp_path / run_folder.name / "checkpoint-8")
    (late,) = mapped(
        read("trainer_state", tmp_path / run_folder.name / "checkpoint-8" / "trainer_state.json"), "trainer_state"
    )
    assert (early.state, late.state) == (ExternalState.RUNNING, ExternalState.FINISHED)
    assert early.run_id == late.run_id, "which of its files is named, and from where, makes no other run"


def test_mlflow_reads_what_mlflow_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    from mlflow.tracking import MlflowClient

    store = tmp_path / "mlruns"
    write_mlflow_runs(MlflowClient(store.as_uri()))
    found = read("mlflow", store)
    runs = mapped(found, "mlflow")
    check_study(runs)
    assert all(run.header.tags == ("team=fixture",) and run.state is ExternalState.FINISHED for run in runs)
    assert values(runs[0], "system/cpu_utilization_percentage") == {0: 50.0}
    with pytest.raises(SourceError, match="does not exist"):
        read("mlflow", tmp_path / "none")


def _files(source: str) -> Iterator[Path]:
    return (path for path in sorted((FILES / source).rglob("*")) if path.is_file())


@pytest.mark.parametrize("source", [*STUDIES, "trainer_state"])
def test_a_damaged_file_is_said_to_be_damaged_or_read_as_far_as_it_is_whole(source: str, tmp_path: Path) -> None:
    reader = READERS[source]
    assert reader.files is not None
    original = next(path for path in _files(source) if path.match(reader.files) and path.stat().st_size > 200)
    whole = original.read_bytes()
    place = tmp_path / original.name
    kept = 0
    for number in range(40):
        if number < 20:
            damaged = whole[: len(whole) * number // 20]
        else:
            at = len(whole) * (number - 20) // 20
            damaged = whole[:at] + bytes(255 - byte for byte in whole[at : at + 8]) + whole[at + 8 :]
        place.write_bytes(damaged)
        with suppress(SourceError):
            kept += len(read(source, tmp_path))
    assert kept or source == "trainer_state", (
        "a tail that is not there yet, or one value, is no reason to refuse the rest"
    )


@pytest.mark.parametrize("source", [name for name, reader in READERS.items() if reader.files])
def test_where_nothing_is_it_says_what_it_looked_for(source: str, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="does not exist"):
        read(source, tmp_path / "none")
    with pytest.raises(SourceError, match="has no"):
        read(source, tmp_path)


def test_what_a_file_is_has_to_be_plain(tmp_path: Path) -> None:
    assert choose_reader(["trainer_state.json", "a", "b"]) == (READERS["trainer_state"], ["a", "b"])
    assert choose_reader(["x.csv"])[0] is READERS["csv"]
    assert choose_reader(["mlflow", "http://127.0.0.1:5000"])[1] == ["http://127.0.0.1:5000"]
    with pytest.raises(SourceError, match="from where"):
        choose_reader(["mlflow"])
    with pytest.raises(SourceError, match="say what it is"):
        choose_reader(["x.parquet"])
    (tmp_path / "a.csv").touch()
    (tmp_path / "b.db").touch()
    with pytest.raises(SourceError, match="csv or trackio"):
        choose_reader([str(tmp_path)])


def test_the_fixture_has_the_steps_that_it_says() -> None:
    assert [step for step, _ in next(iter(study()))[2]] == [*STEPS]
