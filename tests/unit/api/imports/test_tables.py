"""A table is cut into runs by what its columns say; a schedule of rates cuts none, and nothing is lost silently."""

import gzip
import re
import tracemalloc
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from api.imports.mapping import apply_mapping, propose_mapping
from api.imports.source import ReadRequest, SourceError, SourceRun
from api.imports.tables import read
from orchestrator.external_runs import ExternalState


def runs(folder: Path, text: str, *fields: str, step: str | None = None) -> list[SourceRun]:
    path = folder / "table.csv"
    path.write_text(text, "utf-8")
    return list(read(ReadRequest(places=[str(path)], fields=fields, step=step)))


def test_a_long_table_has_a_run_for_each_candidate_rate_and_seed(tmp_path: Path) -> None:
    lines = ["optimizer,lr,seed,step,val_loss"]
    lines += [
        f"{name},{lr},{seed},{step},{3 - step / 100}"
        for name in ("adamw", "muon") for lr in (0.1, 0.2) for seed in (1, 2) for step in (0, 10)
    ]  # fmt: skip
    source_runs = runs(tmp_path, "\n".join(lines))
    assert len(source_runs) == 8 and {run.config["lr"] for run in source_runs} == {0.1, 0.2}
    assert [(point.step, dict(point.metrics)) for point in source_runs[0].sessions[0]] == [
        (0, {"val_loss": 3.0}), (10, {"val_loss": 2.9}),
    ]  # fmt: skip


def test_a_rate_that_changes_with_the_step_is_a_metric(tmp_path: Path) -> None:
    (run,) = runs(tmp_path, "step,lr,loss,val_loss\n0,0.0,3.0,\n1,0.1,2.5,2.6\n2,0.1,2.4,\n")
    assert run.config == {} and [point.metrics["lr"] for point in run.points] == [0.0, 0.1, 0.1]
    (run,) = runs(tmp_path, "step,lr,loss,val_loss\n0,0.1,3.0,\n1,0.1,2.5,2.6\n")
    assert run.config == {"lr": 0.1} and [*run.sessions[0][0].metrics] == ["loss"]


def test_a_summary_has_a_run_in_each_row(tmp_path: Path) -> None:
    source_runs = runs(tmp_path, "run;optimizer;lr;seed;val_loss\na;adamw;0.1;1;3.0\nb;adamw;0.2;1;NaN\n")
    assert [(run.name, run.config["lr"], len(run.sessions[0])) for run in source_runs] == [("a", 0.1, 1), ("b", 0.2, 1)]
    assert source_runs[1].sessions[0][0].metrics["val_loss"] != source_runs[1].sessions[0][0].metrics["val_loss"], (
        "NaN is a value"
    )


def test_texts_that_stay_are_settings_and_those_that_change_are_named(tmp_path: Path) -> None:
    (run,) = runs(tmp_path, "\ufeffstep,host,phase,val_loss\n0,n1,warm,3\n1,n1,decay,2\n")
    assert run.config == {"host": "n1"} and set(run.not_numbers) == {"phase"}


def test_a_text_in_a_column_of_numbers_is_named_and_no_setting(tmp_path: Path) -> None:
    text = "step,val_loss,optimizer,lr,seed\n0,5,adamw,0.1,1\n100,4,adamw,0.1,1\n0,5,muon,0.1,1\n100,oops,muon,0.1,1\n"
    _, muon = runs(tmp_path, text)
    assert muon.config == {"optimizer": "muon", "seed": 1, "lr": 0.1} and len(muon.sessions[0]) == 1
    (text,) = muon.not_numbers
    assert re.fullmatch(r'val_loss at step 100 of \S+/table/muon/1/0.1 \("oops"\)', text) and muon.step_field == "step"


def test_a_column_that_the_mapping_asks_for_tells_runs_apart(tmp_path: Path) -> None:
    text = "arm,step,val_loss\nx,0,3\nx,1,2\ny,0,3\ny,1,1\n"
    assert [run.config["arm"] for run in runs(tmp_path, text, "config.arm")] == ["x", "y"]


def test_epochs_in_parts_are_no_steps_and_rows_are_numbered_aloud(tmp_path: Path) -> None:
    (run,) = runs(tmp_path, "epoch,val_loss\n0.5,3\n1.0,2\n1.5,1\n")
    assert [(point.step, point.metrics["epoch"]) for point in run.points] == [(0, 0.5), (1, 1.0), (2, 1.5)]
    assert "--map step=COLUMN" in run.notes[-1]


def test_a_rate_tells_runs_apart_only_where_they_would_repeat_steps_without_it(tmp_path: Path) -> None:
    restarted = "epoch,lr,val_loss\n0,0.1,5\n1,0.05,4\n0,0.1,3\n1,0.05,2\n"
    (run,) = runs(tmp_path, restarted)
    assert series(run, "lr") == [(0, 0.1), (1, 0.05), (0, 0.1), (1, 0.05)]
    (run,) = runs(tmp_path, "epoch,lr,val_loss\n0.5,0.1,3\n1.0,0.05,2\n1.5,0.0,1\n")
    assert series(run, "epoch") == [(0, 0.5), (1, 1.0), (2, 1.5)]
    grid = "epoch,lr,val_loss\n0,0.1,5\n1,0.1,4\n0,0.2,3\n1,0.2,2\n"
    assert [run.config["lr"] for run in runs(tmp_path, grid)] == [0.1, 0.2]
    scheduled = "lr,max_lr,step,val_loss\n0.1,0.1,0,5\n0.05,0.1,10,4\n0.2,0.2,0,5\n0.1,0.2,10,3\n"
    first, second = runs(tmp_path, scheduled)
    assert (first.config, second.config) == ({"max_lr": 0.1}, {"max_lr": 0.2}) and first.metrics == {"lr", "val_loss"}


def test_settings_that_are_numbers_tell_runs_apart_and_are_no_metrics(tmp_path: Path) -> None:
    decays = "seed,step,weight_decay,lr,val_loss\n1,0,0.0,0.2,5\n1,10,0.0,0.1,4\n1,0,0.1,0.2,5\n1,10,0.1,0.1,3\n"
    first, second = runs(tmp_path, decays)
    assert first.config == {"seed": 1, "weight_decay": 0.0} and series(second, "val_loss") == [(0, 5), (10, 3)]
    summary = "optimizer,seed,lr,weight_decay,val_loss\nmuon,1,0.1,0.0,3\nmuon,1,0.1,0.1,4\n"
    assert [run.config["weight_decay"] for run in runs(tmp_path, summary)] == [0.0, 0.1]
    (run,) = runs(tmp_path, "step,batch_size,timestamp,val_loss\n0,64,2026-01-01T00:00:00Z,5\n9,64,2026-01-02,4\n")
    assert run.config == {"batch_size": 64} and run.metrics == {"val_loss"} and not run.not_numbers


@pytest.mark.parametrize(
    "text",
    [
        "run_id,metrics.val_loss,params.optimizer,params.lr,params.seed,params.steps\na,3,muon,0.1,7,10\n",
        "val_loss,training_iteration,trial_id,config/optimizer,config/lr,config/seed\n4,1,a,muon,0.1,7\n3,2,a,muon,0.1,7\n",
    ],
)
def test_settings_behind_the_prefix_of_a_tracker_are_settings(tmp_path: Path, text: str) -> None:
    (run,) = runs(tmp_path, text)
    mapped = apply_mapping(run, propose_mapping([run], {}, {}), "csv", "e")
    assert (mapped.header.candidate, mapped.header.lr, mapped.header.seed) == ("muon", 0.1, 7)
    assert mapped.points[-1].metrics["val_loss"] == 3 and run.name == "a"


def test_rows_that_are_points_or_runs_are_asked_for(tmp_path: Path) -> None:
    text = "batch,lr,val_loss\n100,0.1,3\n200,0.05,2\n"
    with pytest.raises(SourceError, match=r"--map step=COLUMN if .* --map lr=config\.lr if"):
        runs(tmp_path, text)
    with pytest.raises(SourceError, match="--map step=COLUMN"):
        runs(tmp_path, "batch,batch_size,lr,val_loss\n100,8,0.1,3\n200,8,0.05,2\n")
    (run,) = runs(tmp_path, text, step="batch")
    assert series(run, "val_loss") == [(100, 3), (200, 2)] and run.step_field == "batch"
    assert propose_mapping([run], {"step": "batch"}, {}).fields["step"] == "batch"
    assert [run.config["lr"] for run in runs(tmp_path, text, "config.lr")] == [0.1, 0.05]


def test_rows_of_several_processes_are_one_run(tmp_path: Path) -> None:
    (run,) = runs(tmp_path, "rank,step,val_loss\n4,0,9\n8,0,5\n")
    assert series(run, "val_loss") == [(0, 9), (0, 5)], "these are refused later, as values that share a step"


@pytest.mark.parametrize(
    "text", [",step,val_loss\n0,5,3\n", "Unnamed: 0,step,val_loss\n0,5,3\n", "# step,val_loss\n5,3\n"]
)
def test_what_pandas_and_numpy_put_before_a_table_is_no_metric(tmp_path: Path, text: str) -> None:
    (run,) = runs(tmp_path, text)
    assert run.metrics == {"val_loss"} and series(run, "val_loss") == [(5, 3)]


def test_a_folder_names_the_run_of_a_file_whose_name_says_no_candidate(tmp_path: Path) -> None:
    for way in ("muon-s1/log.csv", "adamw/s2.csv", "lion-s3.csv"):
        (tmp_path / way).parent.mkdir(exist_ok=True)
        (tmp_path / way).write_text("step,val_loss\n0,1\n")
    source_runs = list(read(ReadRequest(places=[str(tmp_path)])))
    mapping = propose_mapping(source_runs, {}, {})
    headers = [apply_mapping(run, mapping, "csv", "a study").header for run in source_runs]
    assert {(header.candidate, header.seed) for header in headers} == {("muon", 1), ("adamw", 2), ("lion", 3)}


def test_hyperparameters_of_python_become_plain_ones_and_no_objects(tmp_path: Path) -> None:
    text = "lr: 0.1\nbetas: !!python/tuple [0.9, 0.95]\nbad: !!python/object/apply:os.system ['touch /tmp/x']\n"
    (tmp_path / "hparams.yaml").write_text(text + "kind: !!python/name:torch.optim.AdamW ''\n")
    (run,) = runs(tmp_path, "step,val_loss\n0,1\n")
    assert run.config["betas"] == [0.9, 0.95] and run.config["bad"] == ["touch /tmp/x"]
    assert "torch.optim.AdamW" in run.config["kind"]


@pytest.mark.parametrize(
    "text",
    [
        "a0: &a0 [1]\n" + "\n".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)),
        "a: &a [*a]", "a: " + "9" * 6_000, "a: 0x" + "f" * 6_000, "a: !!bool maybe", "a: " + "[" * 3_000,
    ],
)  # fmt: skip
def test_hyperparameters_that_multiply_or_cannot_be_read_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "hparams.yaml").write_text(text)
    with pytest.raises(SourceError, match=r"hparams\.yaml cannot be read as YAML"):
        runs(tmp_path, "step,val_loss\n0,1\n")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("a\n1\n", "no header"), ("a,a\n1,2\n", "no header"),
        ("step,val_loss\nx,1\n", "is not a step"), ("step,val_loss\n-1,1\n", "is not a step"),
        ("step,val_loss\nnan,1\n", "is not a step"), ("step,val_loss\n1764590000000000000,3\n", "is not a step"),
        ("step,val_loss\n1,2,3\n", "line 2: 3 cells"),
        ("step;val_loss\n1;3,95\n2;3.9\n", "decimal commas and with decimal dots"),
        ("step,val_loss\n1.500,3\n2.500,2\n", r"line 2: step=1.5 is not a step; it is read as a table of points"),
    ],
)  # fmt: skip
def test_what_is_no_table_is_refused_with_its_place(tmp_path: Path, text: str, fault: str) -> None:
    with pytest.raises(SourceError, match=fault):
        runs(tmp_path, text)


def test_files_that_say_nothing_yet_and_hidden_copies_are_left_out(tmp_path: Path) -> None:
    for name, text in (
        ("a-s1", "step,val_loss\n0,1\n"),
        ("b-s1", "step,val_loss\n"),
        ("c-s1", ""),
        (".d/e", "x"),
        ("._a", "x"),
    ):
        (tmp_path / f"{name}.csv").parent.mkdir(exist_ok=True)
        (tmp_path / f"{name}.csv").write_text(text)
    request = ReadRequest(places=[str(tmp_path)])
    assert [run.name for run in read(request)] == ["a-s1"]
    assert request.empty == [tmp_path / "b-s1.csv", tmp_path / "c-s1.csv"]


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_bytes(gzip.compress(b"step,val_loss\n0,1\n"))
    with pytest.raises(SourceError, match=r"gunzip table\.csv"):
        list(read(ReadRequest(places=[str(tmp_path)])))
    (tmp_path / "table.csv").write_bytes(b"step,val_loss\n\x81\xfe,1\n")
    with pytest.raises(SourceError, match="cannot be read as a table"):
        list(read(ReadRequest(places=[str(tmp_path)])))


def series(run: SourceRun, metric: str) -> list[tuple[int, float]]:
    return [(point.step, point.metrics[metric]) for point in run.points if metric in point.metrics]


def test_an_equal_header_in_the_middle_is_skipped_and_another_is_refused(tmp_path: Path) -> None:
    (run,) = runs(tmp_path, "step,val_loss\n0,3\nstep,val_loss\n0,2\n10,1\n")
    assert series(run, "val_loss") == [(0, 3), (0, 2), (10, 1)] and "header" in run.notes[0]
    with pytest.raises(SourceError, match=r"line 3: 3 cells below 2 columns: step, val_loss, grad_norm"):
        runs(tmp_path, "step,val_loss\n0,3\nstep,val_loss,grad_norm\n10,1,2\n")


@pytest.mark.parametrize(
    "text",
    [
        "step;val_loss\n500;3,95\n1.000;3,9\n10.000;0,5\n", "step;val_loss\n500;3,950\n1000;3,900\n10000;0,500\n",
        'step,val_loss\n500,3.95\n"1,000",3.9\n"10,000",0.5\n', "step\tval_loss\n500\t3.95\n1,000\t3.9\n10,000\t0.5\n",
    ],
)  # fmt: skip
def test_thousands_and_decimals_are_what_the_whole_table_says(tmp_path: Path, text: str) -> None:
    (run,) = runs(tmp_path, text)
    assert series(run, "val_loss") == [(500, 3.95), (1000, 3.9), (10000, 0.5)]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_tables_are_read_in_the_usual_encodings(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "a.csv").write_bytes("step,val_loss,größe\n0,3,ä\n".encode(encoding))
    (run,) = read(ReadRequest(places=[str(tmp_path)]))
    assert run.config == {"größe": "ä"}


def test_a_chart_has_a_run_in_each_column(tmp_path: Path) -> None:
    text = '"Step","a-s1 - eval/loss","a-s1 - eval/loss__MIN","b - c - eval/loss"\n100,3,2,5\n200,2,1,\n'
    first, second = runs(tmp_path, text)
    assert (first.name, series(first, "eval/loss")) == ("a-s1", [(100, 3), (200, 2)])
    assert (second.name, series(second, "eval/loss")) == ("b - c", [(100, 5)])
    assert [*first.not_numbers] == ["eval/loss__MIN"]


def test_curves_of_one_run_are_joined_by_the_names_of_their_files(tmp_path: Path) -> None:
    for name in ("run-muon-s1-tag-loss", "run-muon-s1-tag-eval_loss", "run-muon-s2-tag-loss"):
        (tmp_path / f"{name}.csv").write_text("Wall time,Step,Value\n1.7e9,100,3\n1.7e9,200,2\n")
    (tmp_path / "adamw").mkdir()
    (tmp_path / "adamw" / "val_loss.csv").write_text("step,value\n0,1\n")
    adamw, first, second = sorted(read(ReadRequest(places=[str(tmp_path)])), key=lambda run: run.name)
    assert adamw.name == "adamw" and adamw.metrics == {"val_loss"}
    assert first.name == "muon-s1" and first.metrics == {"loss", "eval_loss"} and second.metrics == {"loss"}
    assert series(first, "loss") == [(100, 3), (200, 2)] and {point.at for point in first.points} == {1.7e9}


def test_a_text_of_parquet_that_repeats_is_in_memory_once(tmp_path: Path) -> None:
    repeated = pa.DictionaryArray.from_arrays(pa.array([0] * 256), pa.array(["x" * 2**20]))
    pq.write_table(pa.table({"step": range(256), "val_loss": [3.0] * 256, "note": repeated}), tmp_path / "a.parquet")
    tracemalloc.start()
    (run,) = read(ReadRequest(places=[str(tmp_path)]))
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(series(run, "val_loss")) == 256 and peak_bytes < 2**25


def test_a_long_table_names_the_metric_in_each_row(tmp_path: Path) -> None:
    text = "run_id,key,value,step,timestamp\n" + "".join(
        f"r{run},{key},{value},{step},{1_700_000_000_000 + step}\n"
        for run in (1, 2) for key, value in (("val_loss", 3 - run), ("loss", 3)) for step in (0, 10)
    )  # fmt: skip
    first, second = runs(tmp_path, text)
    assert (first.name, series(first, "val_loss"), series(second, "val_loss")) == (
        "r1",
        [(0, 2), (10, 2)],
        [(0, 1), (10, 1)],
    )
    assert series(first, "loss") == [(0, 3), (10, 3)]
    assert [point.at for point in first.points][-1] == pytest.approx(1.7e9, abs=1)


def test_parquet_is_read_as_csv_is(tmp_path: Path) -> None:
    rows = [
        {"run": f"a{s}", "optimizer": "a", "lr": 0.1, "seed": s, "step": step, "val_loss": 3.0}
        for s in (1, 2)
        for step in (0, 5)
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    first, second = read(ReadRequest(places=[str(tmp_path)]))
    assert (first.name, first.config["seed"], series(second, "val_loss")) == ("a1", 1, [(0, 3.0), (5, 3.0)])
    (tmp_path / "a.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(SourceError, match=r"a\.parquet cannot be read as a table"):
        list(read(ReadRequest(places=[str(tmp_path)])))


def test_the_export_of_neptune_is_a_long_table_of_typed_values(tmp_path: Path) -> None:
    """Its columns and types as its exporter's documentation has them; parts of one run are several files."""
    kinds = {"float_value": pa.float64(), "int_value": pa.int64(), "string_value": pa.string()}
    schema = pa.schema(
        [
            *((name, pa.string()) for name in ("project_id", "run_id", "attribute_path", "attribute_type")),
            ("step", pa.decimal128(18, 6)), ("timestamp", pa.timestamp("ms", "UTC")), *kinds.items(),
        ]
    )  # fmt: skip
    for part, steps in enumerate(((0, 10), (20, 30))):
        rows: list[dict[str, object]] = [
            {"attribute_path": "parameters/optimizer", "attribute_type": "string", "string_value": "muon"},
            {"attribute_path": "parameters/lr", "attribute_type": "float", "float_value": 0.02},
            {"attribute_path": "parameters/seed", "attribute_type": "int", "int_value": 7},
            *(
                {
                    "attribute_path": "metrics/val_loss", "attribute_type": "float_series", "step": Decimal(step),
                    "timestamp": datetime(2026, 1, 1, 0, 0, step, tzinfo=UTC), "float_value": 3.0 - step / 100,
                }
                for step in steps
            ),
        ]  # fmt: skip
        of_run = [{**dict.fromkeys(schema.names), "project_id": "w/p", "run_id": "R-1", **row} for row in rows]
        pq.write_table(pa.Table.from_pylist(of_run, schema), tmp_path / f"R-1_part_{part}.parquet")
    source_runs = list(read(ReadRequest(places=[str(tmp_path)])))
    run = apply_mapping(source_runs[0], propose_mapping(source_runs, {}, {}), "csv", "here")
    assert (run.header.experiment, run.header.candidate, run.header.lr, run.header.seed) == ("w/p", "muon", 0.02, 7)
    assert [(point.step, point.metrics["val_loss"]) for point in run.points] == [
        (0, 3.0),
        (10, 2.9),
        (20, 2.8),
        (30, 2.7),
    ]
    assert len(source_runs) == 1


def test_rows_of_train_and_eval_are_two_metrics(tmp_path: Path) -> None:
    (run,) = runs(tmp_path, "step,split,loss\n0,train,3\n0,eval,4\n10,train,1\n10,eval,2\n")
    assert series(run, "eval/loss") == [(0, 4), (10, 2)] and series(run, "train/loss") == [(0, 3), (10, 1)]
    (run,) = runs(tmp_path, "run,metric,context,step,value\na,loss,train,0,3\na,loss,val,0,4\na,loss,val,10,2\n")
    assert series(run, "val/loss") == [(0, 4), (10, 2)] and series(run, "train/loss") == [(0, 3)]


def test_groups_of_three_digits_by_either_sign_are_refused_because_nothing_says_which_is_decimal(
    tmp_path: Path,
) -> None:
    with pytest.raises(SourceError, match="which sign is decimal"):
        runs(tmp_path, "step\tval_loss\n1,000\t3.102\n2,000\t3.068\n")
    (run,) = runs(tmp_path, "step\tval_loss\n1,000\t3.1\n")
    assert run.sessions[0][0].step == 1000


def test_a_curve_in_a_file_named_after_its_run_is_that_runs(tmp_path: Path) -> None:
    for name in ("adamw-lr0.1-s1", "muon-lr0.1-s1"):
        (tmp_path / f"{name}.csv").write_text("Wall time,Step,Value\n1.7e9,100,3.0\n")
    source_runs = list(read(ReadRequest(places=[str(tmp_path)])))
    assert {(run.name, *run.metrics) for run in source_runs} == {
        ("adamw-lr0.1-s1", "Value"), ("muon-lr0.1-s1", "Value"),
    }  # fmt: skip


def test_a_run_whose_state_is_no_known_word_for_an_end_has_failed(tmp_path: Path) -> None:
    words = ("COMPLETED", "TIMEOUT", "PRUNED", "pending", "crashed", "Running", "finished")
    lines = [f"{seed},{seed},{word},3.0" for seed, word in enumerate(words)]
    states = [run.state for run in runs(tmp_path, "\n".join(("run,seed,state,val_loss", *lines)))]
    finished, failed, running = ExternalState.FINISHED, ExternalState.FAILED, ExternalState.RUNNING
    assert states == [finished, failed, failed, running, failed, running, finished]


def test_last_rows_without_a_value_are_named_because_pandas_writes_nan_so(tmp_path: Path) -> None:
    ended, diverged = runs(tmp_path, "seed,step,val_loss\n1,0,5\n1,10,\n1,20,3\n2,0,5\n2,10,None\n2,20,\n")
    assert ended.notes == () and "NaN" in diverged.notes[0]
