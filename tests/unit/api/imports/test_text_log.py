"""Lines of well-known scripts, and of any by a pattern, are runs; a file of several trainings has several."""

import gzip
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from api.imports.mapping import MappedRun, apply_mapping, propose_mapping
from api.imports.source import ReadRequest, SourceError
from api.imports.text_log import FORMATS, read
from orchestrator.external_runs import ExternalState


def logged(folder: Path, pattern: str | None = None) -> list[MappedRun]:
    runs = list(read(ReadRequest(places=[str(folder)], pattern=pattern)))
    mapping = propose_mapping(runs, {}, {})
    return [apply_mapping(run, mapping, "text", "a study") for run in runs]


def write(path: Path, *lines: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")


def values(run: MappedRun, metric: str = "val_loss") -> list[tuple[int, float]]:
    return [(point.step, point.metrics[metric]) for point in run.points if metric in point.metrics]


LINES = {
    "nanogpt": (
        "iter 0: loss 10.9, time 300.12ms, mfu -100.00%",
        "[2026-03-29 01:30:00,123][train][INFO] - step 250: train loss 3.7, val loss 3.8",
        "step 500: train loss 3.4, val loss 3.5",
    ),
    "modded-nanogpt": (
        "Using seed=15",
        "step:0/500 val_loss:10.8 train_time:0ms step_avg:nanms",
        "step:1/500 train_time:5.4s step_avg:5418.26ms",
        "step:250/500 val_loss:3.8 train_time:37.1s step_avg:148.4ms",
        "step:500/500 val_loss:3.5 train_time:74.1s step_avg:148.2ms ema_beta:0.98",
    ),
    "llm.c": (
        "s:0 tel:10.9",
        "s:250 trl:3.7 lr:0.000600 norm:0.31",
        "s:250 tel:3.8",
        "s:500 tel:3.5",
        "s:500 eval:0.29",
    ),
    "dicts": (
        "{'loss': '3.7', 'grad_norm': '0.31', 'learning_rate': '5e-05', 'epoch': '0.25'}",
        "\r 50%|#####     | 1/2 [00:01<00:01]\r{'eval_loss': 3.8, 'eval_runtime': 1.0, 'epoch': 0.25}",
        "{'eval_loss': '3.5', 'epoch': '0.5'}",
    ),
}


@pytest.mark.parametrize("name", FORMATS)
def test_lines_of_well_known_scripts_are_read_without_being_named(name: str, tmp_path: Path) -> None:
    write(tmp_path / "adamw-lr0.1-s15.log", "a header", 'print(f"step:{step}/9 val_loss:1")', *LINES[name])
    for pattern in (None, name):
        (run,) = logged(tmp_path, pattern)
        assert values(run)[-2:] == [(250, 3.8), (500, 3.5)] and run.state is ExternalState.FINISHED
        assert (run.header.candidate, run.header.lr, run.header.seed) == ("adamw", 0.1, 15)


def test_a_pattern_names_step_and_metrics(tmp_path: Path) -> None:
    write(tmp_path / "a.out", "[12:00] update 5 >> val 3.5 (ppl 33)", "[12:01] update 10 >> val nan (ppl nan)")
    (run,) = logged(tmp_path, r"update (?P<step>\d+) >> val (?P<val_loss>\S+) \(ppl (?P<ppl>\S+)\)")
    assert values(run)[0] == (5, 3.5) and values(run, "ppl")[0] == (5, 33.0) and len(values(run)) == 2


def test_numbers_are_read_as_people_print_them(tmp_path: Path) -> None:
    lines = (f"\x1b[32mStep {step:,}/2,000 \x1b[0mval {3 - step / 2000}, bits n/a" for step in (0, 2000))
    write(tmp_path / "a.log", *lines)
    (run,) = logged(tmp_path, r"Step (?P<step>\S+)/(?P<last_step>\S+) .*val (?P<val_loss>\S+) bits (?P<bits>\S+)")
    assert values(run) == [(0, 3.0), (2000, 2.0)] and run.state is ExternalState.FINISHED
    write(tmp_path / "c" / "a.log", "step 1,000 val 2,921", "step 2,000 val 2,9", "step 3,000 val 1,234.5")
    (run,) = logged(tmp_path / "c", r"step (?P<step>\S+) val (?P<val_loss>\S+)")
    assert values(run) == [(3000, 1234.5)], "a comma that may be decimal is not guessed at"
    with pytest.raises(SourceError, match=r"'val' is not a step; narrow the pattern, which matches Step 0"):
        logged(tmp_path, r"(?P<step>val) (?P<val_loss>\S+)")


def test_a_line_without_a_step_belongs_to_the_step_above_it(tmp_path: Path) -> None:
    write(tmp_path / "a.log", "Epoch 1", " Avg loss: 3.5", "Epoch 2", "----", " Avg loss: 2.5", "bye")
    (run,) = logged(tmp_path, r"^Epoch (?P<step>\d+)|Avg loss: (?P<val_loss>\S+)")
    assert values(run) == [(1, 3.5), (2, 2.5)]


def test_another_seed_in_a_log_is_another_run_also_where_lines_alternate(tmp_path: Path) -> None:
    blocks = (f"seed {seed}\nstep 0 val {seed}5\nstep 9 val {seed}3" for seed in (1, 2))
    alternating = (
        f'{{"seed": {seed}, "step": {step}, "val_loss": {seed}{value}}}'
        for step, value in ((0, 5), (9, 3))
        for seed in (1, 2)
    )
    for lines, pattern in (
        (blocks, r"^seed (?P<seed>\d+)|step (?P<step>\d+) val (?P<val_loss>\S+)"),
        (alternating, None),
    ):
        write(tmp_path / "a.log", *lines)
        first, second = logged(tmp_path, pattern)
        assert (first.header.seed, values(first)) == (1, [(0, 15), (9, 13)])
        assert (second.header.seed, values(second)) == (2, [(0, 25), (9, 23)])


@pytest.mark.parametrize(
    ("name", "encode"),
    [("a.log.gz", lambda text: gzip.compress(text.encode())), ("a.log", lambda text: text.encode("utf-16"))],
)
def test_a_log_may_be_packed_or_wide_and_json_keeps_parts_apart(
    tmp_path: Path, name: str, encode: Callable[[str], bytes]
) -> None:
    text = '{"step": 1, "train": {"loss": 9.5}, "val": {"loss": 3.5, "best": null}}\r\n'
    (tmp_path / name).write_bytes(encode(text))
    (run,) = logged(tmp_path)
    assert values(run) == [(1, 3.5)] and values(run, "train.loss") == [(1, 9.5)]
    assert run.metrics == {"val_loss", "train.loss"}


def test_a_folder_that_says_seed_and_rate_is_a_candidate_without_them(tmp_path: Path) -> None:
    for seed in (1, 2):
        write(tmp_path / f"muon-lr0.02-s{seed}" / "train.log", "s:0 tel:5", "s:5 tel:3")
    headers = [run.header for run in logged(tmp_path)]
    assert [(header.candidate, header.lr, header.seed) for header in headers] == [("muon", 0.02, 1), ("muon", 0.02, 2)]


def test_folders_are_candidates_and_seeds_are_told_or_numbered(tmp_path: Path) -> None:
    for way in ("muon/x.txt", "muon/y.txt", "adamw/seed_7/stdout.txt", "adamw/seed_8/stdout.txt"):
        write(tmp_path / way, f"s:0 tel:{len(way)}", f"s:5 tel:3.{hash(way) % 7}")
    write(tmp_path / "adamw" / "seed_7" / "last.txt", "s:0 tel:23")
    write(tmp_path / "adamw" / "train.py", "print(f's:{step} tel:{loss}')")
    (tmp_path / "adamw" / "model.bin").write_bytes(b"s:0 tel:1\n\x00")
    runs = logged(tmp_path)
    assert [(run.header.candidate, run.header.seed) for run in runs] == [
        ("adamw", 7), ("adamw", 8), ("muon", 1), ("muon", 2),
    ]  # fmt: skip
    assert "no other values" in runs[0].notes[0] and "numbered" in runs[3].notes[0]
    assert all("counts as finished" in run.notes[-1] for run in runs) and len(runs[1].notes) == 1


def test_a_later_log_changes_no_run_that_was_there(tmp_path: Path) -> None:
    for number, name in enumerate(("b.log", "b.txt", "a.log")):  # of an equal beginning, as where a head starts at zero
        write(tmp_path / name, "s:0 tel:10.9", f"s:5 tel:{number}")
        os.utime(tmp_path / name, (number, number))
        runs = {values(run)[-1][1]: run for run in logged(tmp_path)}
        assert [runs[index].header.seed for index in range(number + 1)] == [*range(1, number + 2)]
    ids = {value: run.run_id for value, run in runs.items()}
    assert len({*ids.values()}) == 3
    os.utime(tmp_path / "b.log", (9, 9))
    assert {values(run)[-1][1]: run.run_id for run in logged(tmp_path)} == ids, "another number is the same run"


def test_a_file_that_begins_again_after_its_end_has_several_trainings(tmp_path: Path) -> None:
    log = ["step:0/10 val_loss:9 train_time:0s", "step:10/10 val_loss:3 train_time:1s"]
    went_back = [log[0], "step:6/10 val_loss:5 train_time:1s", "step:8/10 val_loss:4 train_time:1s"]
    write(tmp_path / "board.txt", *log, "Using seed=4", *log, *went_back, *went_back[1:], log[1].replace(":3", ":2"))
    first, second, third = logged(tmp_path)
    assert [len(values(run)) for run in (first, second, third)] == [2, 2, 4]
    assert (second.header.seed, third.header.seed) == (4, 2) and values(third)[-1] == (10, 2.0)
    assert any("went back to step 6" in note for note in third.notes)


def test_a_log_that_stops_before_its_last_step_has_not_ended_unless_others_of_it_stop_there(tmp_path: Path) -> None:
    for folder, ends in (("killed", (10, 6)), ("stopped", (8, 8))):
        for number, end in enumerate(ends):
            write(tmp_path / folder / f"{number}.txt", f"step:{end}/10 val_loss:{number} train_time:1s")
    states = [run.state for run in logged(tmp_path)]
    assert states == [ExternalState.FINISHED, ExternalState.RUNNING, ExternalState.FINISHED, ExternalState.FINISHED]


@pytest.mark.parametrize(
    ("pattern", "fault"),
    [
        (None, "matches nanogpt"), ("step (?P<step>", "no regular expression"), (r"step (?P<step>\d+)", "no metric"),
        ("nanogpt", "matches nanogpt"),
    ],
)  # fmt: skip
def test_what_matches_nothing_is_told_how_to_say_it(pattern: str | None, fault: str, tmp_path: Path) -> None:
    write(tmp_path / "a.log", "nothing of a training")
    with pytest.raises(SourceError, match=fault):
        logged(tmp_path, pattern)
