"""Imported twice, an experiment is the same; a run that grew has its new points; the verdict is that of the figures."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from api.cli import main
from api.client.client import Client
from api.client.own_runs import MOST_METRICS
from api.imports.transfer import _metric_groups
from orchestrator.analysis.estimator import paired_difference
from orchestrator.analysis.statistics import mean_interval
from orchestrator.external_runs import MOST_VALUES, MetricSummary
from orchestrator.records import Conclusion
from tests.factories.external_runs import external_run
from tests.integration.api_service import serving
from tests.sources.study import FILES, SEEDS, loss


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(tmp_path_factory.mktemp("service")) as service:
        yield service.url


def run_import(url: str, *arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(main, ["import", *arguments, "--url", url])
    assert result.exit_code == code, result.output
    return result.output


def test_a_study_of_wandb_is_judged_by_its_own_figures_and_comes_once(url: str) -> None:
    arguments = ("wandb", str(FILES / "wandb"), "--experiment", "from wandb", "--set", "workload=curves")
    assert "nothing was sent" in run_import(url, *arguments, "--dry-run")
    first = run_import(url, *arguments)
    assert "6 of them new" in first and "config.optimizer" in first
    with Client(url) as client:
        runs = client.external_runs("from wandb")
        assert "0 of them new" in run_import(url, *arguments)
        assert client.external_runs("from wandb") == runs, "nothing of it changed, not even when it was heard of"
        judged = client.judge("from wandb", baseline="adamw")
    best = judged.rows[0]
    adamw, muon = ([loss(seed, gain, 40) for seed in SEEDS] for gain in (0.0, 0.1))
    assert best.candidate == "muon" and best.conclusion is Conclusion.BETTER and best.loss is not None
    assert best.loss == mean_interval(muon[:2]), "the third one failed"
    expected = paired_difference(dict(enumerate(muon[:2])), dict(enumerate(adamw[:2])))
    assert expected is not None and best.difference is not None and best.difference.mean == pytest.approx(expected.mean)
    assert any("failed" in concern for concern in judged.concerns)
    assert not any("configuration differs" in concern for concern in judged.concerns), (
        "optimizer and rate are no such setting"
    )


def test_a_table_that_grows_is_corrected_and_named_anew(url: str, tmp_path: Path) -> None:
    table = tmp_path / "grown.csv"
    rows = ["arm,lr,seed,step,val_loss", "muon,0.1,1,0,5.0", "muon,0.1,1,10,4.0"]

    def write() -> None:
        table.write_text("\n".join(rows) + "\n")

    write()
    assert "candidate" in run_import(url, str(table), code=1)
    arguments = (str(table), "--map", "candidate=config.arm")
    assert "1 of them new" in run_import(url, *arguments)
    rows += ["muon,0.1,1,20,3.0", "muon,0.1,2,0,5.5"]
    write()
    assert "1 of them new" in run_import(url, *arguments)
    rows[2] = "muon,0.1,1,10,nan"
    write()
    corrected = run_import(url, *arguments)
    assert "0 of them new" in corrected and "1 had other values before" in corrected
    assert "0 new values" in run_import(url, *arguments)
    with Client(url) as client:
        first = next(run for run in client.external_runs("grown") if run.seed == 1)
        series = client.external_series(first.id)
    assert series.steps["val_loss"] == (0, 10, 20) and series.values["val_loss"][1] != series.values["val_loss"][1]
    assert (first.source, first.origin, first.metrics["val_loss"].last) == ("csv", "external", 3.0)


def test_a_run_that_went_back_since_its_last_import_has_no_more_of_what_it_left(url: str, tmp_path: Path) -> None:
    log = tmp_path / "sgd-lr0.1-s1.log"
    arguments = ("log", str(log), "--experiment", "went back")
    lines = [f"s:{step} tel:{loss}" for step, loss in ((0, 5.0), (10, 4.0), (20, 3.0), (30, 1.0))]
    log.write_text("\n".join(lines) + "\n")
    run_import(url, *arguments, "--set", "workload=curves")
    with Client(url) as client:
        client.label_external_experiment("went back", add=["mine"])
    log.write_text("\n".join([*lines, "s:10 tel:4.5", "s:20 tel:3.5"]) + "\n")
    assert "1 sent whole again" in run_import(url, *arguments)
    with Client(url) as client:
        (run,) = client.external_runs("went back")
        series = client.external_series(run.id)
        assert client.external_experiment("went back").labels == ("mine",)
    assert series.steps["val_loss"] == (0, 10, 20) and series.values["val_loss"] == (5.0, 4.5, 3.5)
    assert run.metrics["val_loss"].last == 3.5 and run.workload == "curves"
    assert "0 new values" in run_import(url, *arguments)
    log.write_text(lines[0] + "\n")
    run_import(url, *arguments)
    with Client(url) as client:
        assert client.external_series(run.id) == series, "a part of a source is not a run that went back"


def test_a_log_keeps_the_number_that_it_was_first_sent_with(url: str, tmp_path: Path) -> None:
    arguments = ("log", str(tmp_path), "--experiment", "numbered", "--set", "lr=0.1")
    for order in ((1, 2), (2, 1)):
        for name, modified_at in zip(("a.log", "b.log"), order, strict=True):
            (tmp_path / name).write_text(f"s:0 tel:{ord(name[0])}\ns:{5 * order[0]} tel:3\n")
            os.utime(tmp_path / name, (modified_at, modified_at))
        run_import(url, *arguments)
    with Client(url) as client:
        runs = client.external_runs("numbered")
    assert sorted((run.seed, run.metrics["val_loss"].first, run.metrics["val_loss"].last_step) for run in runs) == [
        (1, ord("a"), 10),
        (2, ord("b"), 10),
    ]
    (tmp_path / "c.log").write_text("s:0 tel:4\ns:10 tel:3\n")
    os.utime(tmp_path / "c.log", (1.5, 1.5))  # between the others: by the order of change its number is one of theirs
    run_import(url, *arguments)
    with Client(url) as client:
        assert sorted(run.seed or 0 for run in client.external_runs("numbered")) == [1, 2, 3]


def test_runs_with_equal_names_and_settings_do_not_replace_one_another(url: str, tmp_path: Path) -> None:
    for folder, last in (("wd0/muon", 3.0), ("wd1/muon", 2.0)):
        path = tmp_path / folder / "muon-lr0.1-s1.csv"
        path.parent.mkdir(parents=True)
        path.write_text(f"step,val_loss\n0,11\n10,{last}\n")
    message = run_import(url, "csv", str(tmp_path), "--experiment", "alike", code=1)
    assert "would replace it" in message.replace("\n", " ")
    with Client(url) as client:
        (run,) = client.external_runs("alike")
    assert run.metrics["val_loss"].last == 3.0 and run.name == "muon-lr0.1-s1"


def test_a_source_without_a_loss_is_asked_for_the_metric_to_judge_by(url: str, tmp_path: Path) -> None:
    table = tmp_path / "scores.csv"
    table.write_text("optimizer,seed,step,accuracy,f1\nmuon,1,10,0.5,0.4\n")
    assert "it could be accuracy, f1" in run_import(url, str(table), "--dry-run").replace("\n", " ")


def test_another_mapping_of_the_same_runs_does_not_change_what_they_were(url: str) -> None:
    arguments = ("trackio", str(FILES / "trackio"), "--experiment", "from trackio")
    run_import(url, *arguments)
    refused = run_import(url, *arguments, "--set", "candidate=other", code=1)
    assert "'other'" in refused
    with Client(url) as client:
        assert set(client.external_experiment("from trackio").candidates) == {"adamw", "muon"}
        judged = client.judge("from trackio")
    assert any("trackio" in note for note in judged.unchecked)


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (("wandb", "nowhere"), "nowhere does not exist"),
        (("csv", "a.csv", "--map", "candidat=x"), "NAME is one of experiment, candidate"),
        (("csv", "a.csv", "--set", "candidate"), "use --set NAME=VALUE"),
    ],
)
def test_what_is_asked_wrongly_is_answered_with_the_way_out(words: tuple[str, ...], fault: str) -> None:
    assert fault in run_import("http://127.0.0.1:9", *words, code=2)


def groups(points: dict[str, int]) -> list[list[str]]:
    run = external_run("muon", 0.1, 1, 2.0)
    (summary,) = run.metrics.values()
    metrics: dict[str, MetricSummary] = {
        name: summary.model_copy(update={"points": count}) for name, count in points.items()
    }
    return list(_metric_groups(run.model_copy(update={"metrics": metrics})))


def test_the_metrics_of_a_long_run_are_asked_for_in_several_answers() -> None:
    assert groups({}) == []
    assert groups({"a": MOST_VALUES, "b": 1, "c": MOST_VALUES - 1, "d": 1}) == [["a"], ["b", "c"], ["d"]]
    assert [len(names) for names in groups({f"{n}": 1 for n in range(2 * MOST_METRICS + 5)})] == [
        MOST_METRICS,
        MOST_METRICS,
        5,
    ]
