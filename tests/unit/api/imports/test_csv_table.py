"""A table is cut into runs by what its columns say; a schedule of rates cuts none, and nothing is lost silently."""

from pathlib import Path

import pytest

from api.imports.csv_table import read
from api.imports.source import ReadRequest, SourceError, SourceRun


def runs(folder: Path, text: str, *fields: str) -> list[SourceRun]:
    path = folder / "table.csv"
    path.write_text(text, "utf-8")
    return list(read(ReadRequest(places=[str(path)], fields=fields)))


def test_a_long_table_has_a_run_for_each_candidate_rate_and_seed(tmp_path: Path) -> None:
    lines = ["optimizer,lr,seed,step,val_loss"]
    lines += [
        f"{name},{lr},{seed},{step},{3 - step / 100}"
        for name in ("adamw", "muon") for lr in (0.1, 0.2) for seed in (1, 2) for step in (0, 10)
    ]  # fmt: skip
    found = runs(tmp_path, "\n".join(lines))
    assert len(found) == 8 and {run.config["lr"] for run in found} == {0.1, 0.2}
    assert [(point.step, dict(point.metrics)) for point in found[0].sessions[0]] == [
        (0, {"val_loss": 3.0}), (10, {"val_loss": 2.9}),
    ]  # fmt: skip


def test_a_rate_that_changes_with_the_step_is_a_metric(tmp_path: Path) -> None:
    (found,) = runs(tmp_path, "step,lr,loss,val_loss\n0,0.0,3.0,\n1,0.1,2.5,2.6\n2,0.1,2.4,\n")
    assert found.config == {} and [point.metrics["lr"] for point in found.points] == [0.0, 0.1, 0.1]
    (found,) = runs(tmp_path, "step,lr,loss,val_loss\n0,0.1,3.0,\n1,0.1,2.5,2.6\n")
    assert found.config == {"lr": 0.1} and [*found.sessions[0][0].metrics] == ["loss"]


def test_a_summary_has_a_run_in_each_row(tmp_path: Path) -> None:
    found = runs(tmp_path, "run;optimizer;lr;seed;val_loss\na;adamw;0.1;1;3.0\nb;adamw;0.2;1;NaN\n")
    assert [(run.name, run.config["lr"], len(run.sessions[0])) for run in found] == [("a", 0.1, 1), ("b", 0.2, 1)]
    assert found[1].sessions[0][0].metrics["val_loss"] != found[1].sessions[0][0].metrics["val_loss"], "NaN is a value"


def test_texts_that_stay_are_settings_and_those_that_change_are_named(tmp_path: Path) -> None:
    (found,) = runs(tmp_path, "\ufeffstep,host,phase,val_loss\n0,n1,warm,3\n1,n1,decay,2\n")
    assert found.config == {"host": "n1"} and set(found.not_numbers) == {"phase"}


def test_a_text_in_a_column_of_numbers_is_named_and_no_setting(tmp_path: Path) -> None:
    text = "step,val_loss,optimizer,lr,seed\n0,5,adamw,0.1,1\n100,4,adamw,0.1,1\n0,5,muon,0.1,1\n100,oops,muon,0.1,1\n"
    _, muon = runs(tmp_path, text)
    assert muon.config == {"optimizer": "muon", "seed": 1, "lr": 0.1} and len(muon.sessions[0]) == 1
    assert [*muon.not_numbers] == ['val_loss at step 100 of table/muon/1/0.1 ("oops")'] and muon.step_field == "step"


def test_a_column_that_the_mapping_asks_for_tells_runs_apart(tmp_path: Path) -> None:
    text = "arm,step,val_loss\nx,0,3\nx,1,2\ny,0,3\ny,1,1\n"
    assert [run.config["arm"] for run in runs(tmp_path, text, "config.arm")] == ["x", "y"]


def test_epochs_in_parts_are_no_steps(tmp_path: Path) -> None:
    (found,) = runs(tmp_path, "epoch,val_loss\n0.5,3\n1.0,2\n1.5,1\n")
    assert [(point.step, point.metrics["epoch"]) for point in found.points] == [(0, 0.5), (1, 1.0), (2, 1.5)]


def test_hyperparameters_of_python_become_plain_ones_and_no_objects(tmp_path: Path) -> None:
    text = "lr: 0.1\nbetas: !!python/tuple [0.9, 0.95]\nbad: !!python/object/apply:os.system ['touch /tmp/x']\n"
    (tmp_path / "hparams.yaml").write_text(text + "kind: !!python/name:torch.optim.AdamW ''\n")
    (found,) = runs(tmp_path, "step,val_loss\n0,1\n")
    assert found.config["betas"] == [0.9, 0.95] and found.config["bad"] == ["touch /tmp/x"]
    assert "torch.optim.AdamW" in found.config["kind"]


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
        ("", "no header"), ("a\n1\n", "no header"), ("a,a\n1,2\n", "no header"), ("step,val_loss\n", "no rows"),
        ("step,val_loss\nx,1\n", "is no step"), ("step,val_loss\n-1,1\n", "is no step"),
        ("step,val_loss\nnan,1\n", "is no step"), ("step,val_loss\n1,2,3\n", "line 2: 3 cells"),
    ],
)  # fmt: skip
def test_what_is_no_table_is_refused_with_its_place(tmp_path: Path, text: str, fault: str) -> None:
    with pytest.raises(SourceError, match=fault):
        runs(tmp_path, text)


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_bytes(b"step,val_loss\n\xff\xfe,1\n")
    with pytest.raises(SourceError, match="cannot be read as CSV"):
        list(read(ReadRequest(places=[str(tmp_path)])))
