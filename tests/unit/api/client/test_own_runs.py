"""Logged values of a training loop are on disk, and never raise into the training or delay it."""

import logging
import math
import os
import warnings
from contextlib import nullcontext
from decimal import Decimal
from pathlib import Path
from threading import Thread

import numpy as np
import pytest
import torch

from api.cli.files import imports
from api.client.own_runs import OwnRun, start_run
from api.client.spool import RunSpool, SpoolError, batches, find
from orchestrator.external_runs import RANK_VARIABLES, ExternalState, LinesBatch, LinesReceipt, SpoolLine


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", *RANK_VARIABLES, "ADAPM_BENCH_URL", "ADAPM_BENCH_RUNS"):
        monkeypatch.delenv(name, raising=False)


def start(folder: Path, **more: object) -> OwnRun:
    return start_run(experiment="a study", candidate="muon", folder=folder, **({"lr": 0.02, "seed": 1} | more))  # type: ignore[arg-type]


def told(run: OwnRun) -> list[SpoolLine | None]:
    """The lines behind the one that says that it runs."""
    assert run.path is not None
    first, *later_lines = RunSpool(run.path).lines()
    assert first is not None and first.state is ExternalState.RUNNING
    return later_lines


def test_a_run_is_its_header_its_points_and_its_end(tmp_path: Path) -> None:
    config = {
        "lr": np.float32(0.5),
        "betas": (0.9, 0.95),
        "decay": math.inf,
        "model": Path("gpt2"),
        "nested": {1: None},
    }
    with start(tmp_path, config=config, tags=["a"], workload="124M") as run:
        run.log(step=10, val_loss=3.5, train_loss=np.float32(3.25))
        run.log({"eval/loss": 3}, tokens=True)
        assert len(told(run)) == 2, "it is on disk when `log` returns"
    points = [(line.step, dict(line.metrics)) for line in told(run) if line is not None]
    assert points == [(10, {"val_loss": 3.5, "train_loss": 3.25}), (11, {"eval/loss": 3.0, "tokens": 1.0}), (None, {})]
    last = told(run)[-1]
    assert last is not None and last.state is ExternalState.FINISHED
    header = RunSpool(find(tmp_path)[0]).run
    assert (header.experiment, header.candidate, header.lr, header.seed) == ("a study", "muon", 0.02, 1)
    assert (
        header.config["betas"] == [0.9, 0.95] and header.config["decay"] == "inf" and header.config["model"] == "gpt2"
    )


def test_nothing_that_is_logged_raises_and_what_is_left_out_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = start(tmp_path)
    for _ in range(3):
        run.log(step=1, words="none", pair=np.zeros(2), nothing=None, good=Decimal("2.5"))
    for step in (-1, 2**60, math.nan, 1.5, "ten", None.__class__):
        run.log(step=step, val_loss=1.0)  # type: ignore[arg-type]
    run.log({"": 1.0, "x" * 200: 2.0, 5: 3.0}, step=2)  # type: ignore[dict-item]
    run.log(step=3)
    run.log(["no mapping"], step=4)  # type: ignore[arg-type]
    run.log(step=5, nan=math.nan, up=math.inf, down=-math.inf)
    run.finish("odd")
    run.finish()
    run.log(step=6, late=1.0)
    lines = [line for line in told(run) if line is not None]
    assert [(line.step, sorted(line.metrics)) for line in lines] == [
        *[(1, ["good"])] * 3, (2, ["5"]), (5, ["down", "nan", "up"]), (None, []),
    ]  # fmt: skip
    assert math.isnan(lines[4].metrics["nan"]) and lines[4].metrics["down"] == -math.inf
    assert lines[-1].state is ExternalState.FAILED
    messages = [record.getMessage() for record in caplog.records]
    assert sum("words" in message for message in messages) == 1
    assert run.left_out == 9 + 6 + 2 + 1 + 1


def test_a_run_goes_on_by_its_id_in_a_spool_of_its_own_behind_its_last_step(tmp_path: Path) -> None:
    for points in (5, 3):
        run = start(tmp_path, id="mine")
        for _ in range(points):
            run.log(val_loss=1.0)
    resumed_run = start(tmp_path, id="mine")
    resumed_run.log(step=3, val_loss=1.0)
    resumed_run.log(val_loss=1.0)
    sessions = sorted(map(RunSpool, find(tmp_path)), key=lambda spool: spool.run.started_at)
    steps = [[line.step for line in spool.lines() if line and line.metrics] for spool in sessions]
    assert steps == [[0, 1, 2, 3, 4], [5, 6, 7], [3, 4]]
    assert {spool.run_id for spool in sessions} == {"mine"} and len({spool.part for spool in sessions}) == 3
    newest = start(tmp_path, id="mine")
    newest.log(val_loss=1.0)
    assert [line.step for line in told(newest) if line] == [5], "behind the newest session's"
    with pytest.raises(ValueError, match=r"lr=0.5: run mine began with 0.02"):
        start(tmp_path, id="mine", lr=0.5)


@pytest.mark.parametrize(
    ("name", "rank", "kept"),
    [("RANK", "1", None), ("SLURM_PROCID", "2", {"SLURM_PROCID": 2}), ("PMI_RANK", "0", {}), ("PMIX_RANK", "no", {})],
)
def test_of_the_processes_of_a_launcher_the_first_logs_or_it_is_kept_which_one_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, rank: str, kept: dict[str, int] | None
) -> None:
    monkeypatch.setenv(name, rank)
    run = start(tmp_path)
    assert (run.path is None) == (kept is None)
    assert kept is None or run.header.config == kept


def test_a_loss_in_its_graph_is_logged_without_a_warning(tmp_path: Path) -> None:
    run = start(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run.log(step=1, val_loss=2 * torch.ones((), requires_grad=True))
    assert [line.metrics for line in told(run) if line is not None] == [{"val_loss": 2.0}]


@pytest.mark.parametrize(
    "field", [{"experiment": ""}, {"lr": 0.0}, {"lr": math.nan}, {"seed": -1}, {"id": "../x"}, {"candidate": "a\x00"}]
)
def test_what_could_not_be_judged_is_refused_before_the_training(tmp_path: Path, field: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(field))):
        start_run(**({"experiment": "a study", "candidate": "muon", "folder": tmp_path} | field))  # type: ignore[arg-type]
    assert find(tmp_path) == []


def test_a_folder_that_cannot_be_written_to_ends_no_training(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    with start(tmp_path / "file") as run:
        run.log(step=1, val_loss=1.0)
    assert run.path is None and "nothing is logged" in caplog.text


def test_a_full_disk_ends_no_training_and_costs_the_lines_that_had_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = start(tmp_path)
    write = os.write
    monkeypatch.setattr(os, "write", lambda file, line: write(file, line[:7]))
    run.log(step=1, val_loss=1.0)

    def refuse(_file: int, _line: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", refuse)
    run.log(step=2, val_loss=1.0)
    monkeypatch.undo()
    run.log(step=3, val_loss=1.0)
    run.finish()
    steps = [None if line is None else line.step for line in told(run)]
    assert steps == [None, 3, None] and told(run)[0] is None and run.left_out == 2


def test_threads_that_log_at_once_tear_no_line(tmp_path: Path) -> None:
    with start(tmp_path) as run:

        def log_many() -> None:
            for step in range(200):
                run.log(step=step, val_loss=1.0)

        threads = [Thread(target=log_many) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(told(run)) == 801 and None not in told(run)


def test_a_spool_is_read_as_far_as_it_is_whole(tmp_path: Path) -> None:
    run = start(tmp_path)
    run.log(step=1, val_loss=1.0)
    assert run.path is not None
    with run.path.open("ab") as file:
        file.write(b'{"at": 1.0, "step": 2, "metr')
    spool = RunSpool(run.path)
    assert len(list(spool.lines())) == 2, "the torn line may still be whole one day"
    with run.path.open("ab") as file:
        file.write(b'\n{"at": 1.0, "step": 3, "metrics": {"val_loss": 0.5}}\n')
    assert [None if line is None else line.step for line in spool.lines(2)] == [None, 3]
    assert [batch.first_line for batch in batches(spool.run, spool.part, spool.lines(1), 1)] == [1]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'{"id": "a"', "first line"),
        (b'{"id": "a", "part": "b"}\n', "run: Field required"),
        (b'{"id": "a", "part": "b", "run": {}}\n', "run.experiment"),
        (b'{"id": "a", "pa\n', "Invalid JSON: control character"),
        (b'\xff\xfe{"id"\n', "Invalid JSON: expected value"),
    ],
)
def test_what_is_no_spool_is_said_to_be_none_with_its_line_and_the_way_out(
    tmp_path: Path, content: bytes, words: str
) -> None:
    path = tmp_path / "x.run.jsonl"
    path.write_bytes(content)
    with pytest.raises(SpoolError) as raised:
        RunSpool(path)
    assert words in str(raised.value) and str(path) in str(raised.value)


class Received:
    """A service that keeps what it is sent."""

    def __init__(self) -> None:
        self.lines: list[SpoolLine | None] = []

    def send_lines(self, run_id: str, batch: LinesBatch) -> LinesReceipt:
        self.lines[batch.first_line : batch.first_line + len(batch.lines)] = batch.lines
        return LinesReceipt(run_id=run_id, experiment_id="x", lines=len(self.lines))


def test_lines_that_cannot_be_read_keep_no_others_from_being_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run, service = start(tmp_path), Received()
    run.log(step=1, val_loss=1.0)
    assert run.path is not None
    whole = b'{"at": 1.0, "step": 3, "metrics": {"val_loss": 0.5}}\n'
    with run.path.open("ab") as file:
        file.write(b'{"at": 1.0, "sta\n' + whole + b'{"at": 1.0, "metrics": {"\xff": 1}}\n')
    content = run.path.read_bytes()
    monkeypatch.setattr(imports, "open_client", lambda url: nullcontext(service))
    imports.import_runs([str(tmp_path)])
    printed = capsys.readouterr()
    assert [line is None for line in service.lines] == [False, False, True, False, True]
    assert "5 new lines" in printed.out
    assert run.path.read_bytes() == content


def test_a_service_that_is_away_is_waited_for_no_longer_than_asked(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "adapm_bench"):
        run = start(tmp_path, url="http://127.0.0.1:9")
        run.log(step=1, val_loss=1.0)
        run.finish(wait_seconds=20.0)
    assert str(run.path) in caplog.text and len(told(run)) == 2
