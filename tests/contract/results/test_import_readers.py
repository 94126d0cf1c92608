"""Every reader makes the same study of what each tracker's own library wrote of it, and ends in no other way than by
a `SourceError` if a file is damaged."""

import contextlib
import dataclasses
import json
import shutil
import sqlite3
import struct
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorboardX import SummaryWriter

from api.imports import mlflow
from api.imports.mapping import FieldMapping, MappedRun, apply_mapping, propose_mapping
from api.imports.readers import READERS, choose_reader, read_runs
from api.imports.source import ReadRequest, SourceError, SourceRun
from orchestrator.external_runs import IMPORTED, ExternalState
from orchestrator.sessions import SourcePoint
from tests.sources.study import FILES, OLDER, study, write_mlflow_runs
from tests.twins.sessions import joined_values

STUDIES = ("csv", "tensorboard", "wandb", "trackio")
"""The sources whose files describe the same study."""


def read(source: str, *places: object) -> list[SourceRun]:
    return list(read_runs(READERS[source], ReadRequest(places=[str(path) for path in places])))


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
            expected = {step + later: metrics[metric] for step, metrics in points}
            assert values(run, metric) == pytest.approx(expected, rel=1e-6), (
                f"{name} {metric}"
            )  # TensorBoard's are float32


@pytest.mark.parametrize(
    ("source", "files"), [*((source, FILES) for source in STUDIES), ("wandb", OLDER), ("tensorboard", OLDER)]
)
def test_a_study_is_read_as_its_tracker_wrote_it(source: str, files: Path) -> None:
    reader, places = choose_reader([str(files / source)])
    assert reader is READERS[source], "the files show by themselves what they are"
    runs = mapped(read(source, *places), source)
    check_study(runs, shift=1 if source == "csv" else 0)  # Lightning has a step of its own for each call
    repeat = mapped(read(source, *places), source)
    assert [run.run_id for run in repeat] == [run.run_id for run in runs]


def test_wandb_says_how_runs_ended_and_what_is_no_number() -> None:
    runs = read("wandb", FILES / "wandb")
    assert {run.name for run in runs if run.state is ExternalState.FAILED} == {"muon-s3"}
    for run in runs:
        assert run.tags == ("fixture",) and run.facts["project"] == "a study" and run.facts["host"] == "a-host"
        assert run.facts["summary"]["best"] > 0 and set(run.not_numbers) == {"words"}
        names = {name for point in run.points for name in point.metrics}
        assert {"nested.norm", "best"} <= names and run.started_at > 1.7e9
        last = max(point.step for point in run.points if "val_loss" in point.metrics)
        assert [point.step for point in run.points if "best" in point.metrics] == [last], "of its summary alone"


def test_a_wandb_run_that_was_killed_is_one_that_has_not_ended(tmp_path: Path) -> None:
    (path,) = (FILES / "wandb").rglob("run-adamw-s1.wandb")
    whole = path.read_bytes()
    shown = []
    for size in (len(whole) * 8 // 10, len(whole) * 9 // 10, len(whole)):
        (tmp_path / path.name).write_bytes(whole[:size])
        (run,) = mapped(read("wandb", tmp_path), "wandb")
        shown.append((run.run_id, run.state, len(run.points)))
    (tmp_path / path.name).write_bytes(whole[:40])
    request = ReadRequest(places=[str(tmp_path)])
    assert [*read_runs(READERS["wandb"], request)] == [] and request.empty == [tmp_path / path.name]
    assert len({run_id for run_id, _, _ in shown}) == 1, "it is the same run as it grows"
    assert [state for _, state, _ in shown] == [ExternalState.RUNNING] * 2 + [ExternalState.FINISHED]
    assert shown[0][2] < shown[1][2] <= shown[2][2]


@pytest.mark.parametrize("files", [FILES, OLDER])
def test_a_trainer_says_its_losses_and_its_folders_the_rest(files: Path) -> None:
    runs = mapped(read("trainer_state", files / "trainer_state"), "trainer_state")
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
    source_runs = read("mlflow", store)
    runs = mapped(source_runs, "mlflow")
    check_study(runs)
    assert all(run.header.tags == ("team=fixture",) and run.state is ExternalState.FINISHED for run in runs)
    assert "system/cpu_utilization_percentage" not in runs[0].metrics, "it has no step of the training"
    with pytest.raises(SourceError, match="does not exist"):
        read("mlflow", tmp_path / "none")


@pytest.mark.parametrize("files", [FILES, OLDER])
def test_a_wandb_run_of_two_processes_is_one_over_the_axis_that_its_owner_defined(files: Path) -> None:
    counted, rewound = sorted(mapped(read("wandb", files / "wandb_resumed"), "wandb"), key=lambda run: run.name)
    assert [*values(counted, "val_loss").items()] == [(0, 0), (20, 10), (40, 20), (60, 130), (80, 140)]
    assert [*values(rewound, "val_loss").items()] == [(0, 0), (10, 10), (20, 120)] and "step 20" in rewound.notes[0]
    (source_run,) = read("wandb", *(files / "wandb_resumed").glob("*-counted"))
    by_count = apply_mapping(source_run, FieldMapping(fields={"candidate": "name"}, constants={}), "wandb", "a study")
    assert [*values(by_count, "val_loss")] == [0, 1, 2, 3, 4] and "behind step 2" in by_count.notes[0]


def tensorboard_run(folder: Path, **scalars: dict[int, float]) -> None:
    with SummaryWriter(str(folder), write_to_disk=True) as writer:
        for tag, values_at in scalars.items():
            for step, value in values_at.items():
                writer.add_scalar(tag, value, step)


def test_folders_that_a_writer_makes_for_parts_of_a_run_belong_to_it(tmp_path: Path) -> None:
    with SummaryWriter(str(tmp_path / "muon-s1")) as writer:
        writer.add_scalar("lr", 0.5, 0)
        for step in (0, 10):
            writer.add_scalars("loss", {"train": step + 1.0, "val": step + 2.0}, step)
        writer.add_hparams({"lr": 0.5}, {"final": 1.0})
    for part in ("train", "validation"):
        tensorboard_run(tmp_path / "keras-s1" / part, epoch_loss={0: 3.0, 1: 2.0})
    tensorboard_run(tmp_path / "adamw-s1", val_loss={0: 1.0})
    tensorboard_run(tmp_path / "adamw-s1" / "eval", accuracy={0: 0.5})
    (tmp_path / "adamw-s1" / "hparams.yaml").write_text("optimizer: adamw\n")
    adamw, keras, muon = sorted(read("tensorboard", tmp_path), key=lambda run: run.name)
    assert muon.metrics == {"lr", "loss/train", "loss/val", "final"} and muon.config == {"lr": 0.5}
    assert keras.metrics == {"train/epoch_loss", "validation/epoch_loss"} and keras.name == "keras-s1"
    assert adamw.metrics == {"val_loss", "eval/accuracy"} and adamw.config == {"optimizer": "adamw"}


def test_a_writer_that_purges_steps_cuts_the_run_there(tmp_path: Path) -> None:
    tensorboard_run(tmp_path, val_loss={0: 3.0, 10: 2.0, 20: 1.0})
    with SummaryWriter(str(tmp_path), purge_step=15, filename_suffix=".second") as writer:
        writer.add_scalar("val_loss", 0.5, 30)
    (run,) = read("tensorboard", tmp_path)
    run = dataclasses.replace(run, config={"optimizer": "muon"})
    assert values(mapped([run], "tensorboard")[0], "val_loss") == {0: 3.0, 10: 2.0, 30: 0.5}


def _field(number: int, content: bytes | int) -> bytes:
    """A field of a message of Protocol Buffers: a number, or bytes."""
    if isinstance(content, int):
        return _varint(number << 3) + _varint(content)
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    return bytes([value & 127 | 128]) + _varint(value >> 7) if value > 127 else bytes([value])


def write_wandb_session(folder: Path, number: int, points: list[SourcePoint]) -> None:
    """A file as W&B writes it, of one block."""
    records = [_field(17, _field(1, b"one") + _field(17, _field(1, int(points[0].at))))]
    for point in points:
        items = {"_step": point.step, "_timestamp": point.at, **point.metrics}
        pairs = [_field(1, name.encode()) + _field(16, json.dumps(value).encode()) for name, value in items.items()]
        records.append(_field(2, b"".join(_field(1, pair) for pair in pairs)))
    chunks = (struct.pack("<IHB", 0, len(record), 1) + record for record in records)
    (folder / f"run-{number}.wandb").write_bytes(b":W&B" + bytes(3) + b"".join(chunks))


def test_the_newest_run_is_read_where_it_is_named_and_once_where_its_folder_was_packed(tmp_path: Path) -> None:
    linked, packed = tmp_path / "linked", tmp_path / "packed"
    (linked / "run-1").mkdir(parents=True)
    write_wandb_session(linked / "run-1", 1, [SourcePoint(at=1.0, step=1, metrics={"val/loss": 3.0})])
    (linked / "latest-run").symlink_to("run-1")
    shutil.copytree(linked, packed)  # which, as zip does, copies what a link leads to
    for place in (linked, linked / "latest-run", packed):
        (run,) = read("wandb", place)
        assert len(run.sessions) == 1


def test_the_lowest_value_in_a_summary_is_no_metric_beside_the_logged_one(tmp_path: Path) -> None:
    write_wandb_session(tmp_path, 0, [SourcePoint(at=1.7e9, step=5, metrics={"val_loss": 2.0})])
    items = (("val_loss", b'{"min": 1.0}'), ("test_loss", b"3.0"))
    pairs = (_field(1, _field(1, name.encode()) + _field(16, value)) for name, value in items)
    record = _field(3, b"".join(pairs))
    with (tmp_path / "run-0.wandb").open("ab") as file:
        file.write(struct.pack("<IHB", 0, len(record), 1) + record)
    (run,) = read("wandb", tmp_path)
    assert [(point.step, point.metrics) for point in run.points] == [(5, {"val_loss": 2.0}), (5, {"test_loss": 3.0})]


def write_tensorboard_session(folder: Path, number: int, points: list[SourcePoint]) -> None:
    with SummaryWriter(str(folder / "one"), filename_suffix=f".{number}") as writer:
        for point in points:
            writer.add_scalar("val_loss", point.metrics["val_loss"], point.step, walltime=point.at)


def write_trackio(folder: Path, points: list[SourcePoint]) -> None:
    with contextlib.closing(sqlite3.connect(folder / "a.db")) as database:
        database.execute("create table metrics (id integer primary key, timestamp, run_name, step, metrics)")
        rows = [(f"{datetime.fromtimestamp(point.at)}", point.step, json.dumps(point.metrics)) for point in points]
        database.executemany("insert into metrics (timestamp, run_name, step, metrics) values (?, 'one', ?, ?)", rows)
        database.commit()


def write_lines(folder: Path, name: str, line: Callable[[SourcePoint], str], points: list[SourcePoint]) -> None:
    (folder / name).write_text("".join(line(point) + "\n" for point in points))


def write_trainer_state(folder: Path, points: list[SourcePoint]) -> None:
    history = [{"step": point.step, "eval_loss": point.metrics["val_loss"]} for point in points]
    (folder / "trainer_state.json").write_text(json.dumps({"global_step": 9, "max_steps": 9, "log_history": history}))


SESSION_WRITERS = {"wandb": write_wandb_session, "tensorboard": write_tensorboard_session}
STREAM_WRITERS: dict[str, Callable[[Path, list[SourcePoint]], None]] = {
    "trackio": write_trackio,
    "trainer_state": write_trainer_state,
    "csv": lambda folder, points: write_lines(
        folder, "one.csv", lambda point: f"{point.step},{point.metrics['val_loss']}",
        [SourcePoint(at=0, step="step", metrics={"val_loss": "val_loss"}), *points],  # type: ignore[arg-type,dict-item]
    ),
    "log": lambda folder, points: write_lines(
        folder, "one.log", lambda point: f"s:{point.step} tel:{point.metrics['val_loss']}", points
    ),
}  # fmt: skip
"""The formats that do not separate the processes of a run."""


def history_of(random: Random) -> list[list[SourcePoint]]:
    """Sessions that go on, go back, leave gaps, overlap, or count from 0; no step comes twice running."""
    sessions, now, step, value = [], 1.7e9, -1, 0
    for _ in range(random.randint(1, 4)):
        now += random.choice([-3.0, 1.0, 50.0])
        points = []
        is_counted = random.random() < 0.5
        for number in range(random.randint(1, 7)):
            later = number if is_counted else max(step + random.choice([1, 1, 2, 3, -4, -9]), 0)
            step, now, value = later if later != step else step + 1, now + 1.0, value + 1
            points.append(SourcePoint(at=now, step=step, metrics={"val_loss": float(value)}))
        sessions.append(points)
    return sessions


@pytest.mark.parametrize("source", [*SESSION_WRITERS, *STREAM_WRITERS])
@settings(max_examples=30, deadline=None)
@given(random=st.randoms(use_true_random=False))
def test_every_reader_makes_of_any_history_what_the_slow_twin_does(source: str, random: Random) -> None:
    sessions = history_of(random)
    with TemporaryDirectory() as folder:
        if source in SESSION_WRITERS:
            for number, points in enumerate(sessions):
                SESSION_WRITERS[source](Path(folder), number, points)
        else:
            sessions = [[point for points in sessions for point in points]]
            STREAM_WRITERS[source](Path(folder), sessions[0])
        (source_run,) = read(source, folder)
        fields = {"candidate": "name", "val_loss": "eval_loss" if source == "trainer_state" else "val_loss"}
        run = apply_mapping(source_run, FieldMapping(fields=fields, constants={}), source, "a study")
    expected = joined_values(sessions, counts_steps=source == "wandb")
    assert {(step, "val_loss"): value for step, value in values(run, "val_loss").items()} == expected


def test_mlflow_makes_of_any_history_what_the_slow_twin_does(tmp_path: Path) -> None:
    from mlflow.entities import Metric
    from mlflow.tracking import MlflowClient

    store = f"sqlite:///{tmp_path / 'mlflow.db'}"
    client = MlflowClient(store)
    experiment = client.create_experiment("a study", artifact_location=str(tmp_path))
    histories = {str(seed): [point for points in history_of(Random(seed)) for point in points] for seed in range(20)}
    for name, points in histories.items():
        run = client.create_run(experiment, run_name=name)
        metrics = [
            Metric("val_loss", point.metrics["val_loss"], timestamp, point.step)
            for timestamp, point in enumerate(points)
        ]
        client.log_batch(run.info.run_id, metrics=metrics)
    for source_run in read("mlflow", store):
        run = apply_mapping(source_run, FieldMapping(fields={"candidate": "name"}, constants={}), "mlflow", "a study")
        expected = joined_values([histories.pop(run.name)])
        assert {(step, "val_loss"): value for step, value in values(run, "val_loss").items()} == expected
    assert not histories


def test_experiments_and_runs_of_mlflow_come_in_pages() -> None:
    from mlflow.store.entities import PagedList

    pages = {None: PagedList([1, 2], token="next"), "next": PagedList([3], token=None)}
    assert [*mlflow._pages(lambda page_token: pages[page_token])] == [1, 2, 3]


def test_values_without_a_step_are_numbered_in_time_and_a_database_stays_as_it_is(tmp_path: Path) -> None:
    from mlflow.entities import Metric
    from mlflow.tracking import MlflowClient

    store = tmp_path / "mlflow.db"
    client = MlflowClient(f"sqlite:///{store}")
    for experiment in ("wanted", "other"):
        experiment_id = client.create_experiment(experiment, artifact_location=str(tmp_path))
        run = client.create_run(experiment_id, run_name="muon-s1")
        client.log_batch(run.info.run_id, metrics=[Metric("val_loss", 4.0 - i, 1000 * i, 0) for i in range(4)])
        client.log_batch(run.info.run_id, metrics=[Metric("lr", 0.5, 2000, 0)])
    contents = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    request = ReadRequest(places=[f"sqlite:///{store}"], only={"project": "want*"})
    (source_run,) = read_runs(READERS["mlflow"], request)
    (run,) = mapped([source_run], "mlflow")
    assert [*values(run, "val_loss").items()] == [(0, 4.0), (1, 3.0), (2, 2.0), (3, 1.0)]
    assert "without a step" in run.notes[0] and source_run.facts["project"] == "wanted"
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == contents
    with pytest.raises(SourceError, match="does not exist"):
        read("mlflow", f"sqlite:///{tmp_path / 'none.db'}")
    assert not (tmp_path / "none.db").exists()


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
    with pytest.raises(SourceError, match="name the kind before it"):
        choose_reader(["x.feather"])
    (tmp_path / "a.csv").touch()
    (tmp_path / "b.db").touch()
    with pytest.raises(SourceError, match="csv or trackio"):
        choose_reader([str(tmp_path)])
