"""The command line against the real service: readable tables, pure JSON, exit codes, one sentence for each trouble."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from api.cli import main
from api.processes.data_folder import lock_data_folder, write_note
from orchestrator.jobs import RunAction
from tests.architecture.tree import REPOSITORY
from tests.factories.dataset import prepare_made_dataset
from tests.factories.scaling import scaling_fields
from tests.factories.waiting import until
from tests.integration.api_service import Service, comparison_fields, serving, submitted

RUN = {"workload": {"model": "gpt2-tiny", "budget": {"steps": 1}}, "optimizer": {"name": "adapm", "lr": 0.1}}


@pytest.fixture
def experiment_id(service: Service) -> str:
    return submitted(service)


def written(folder: Path, fields: Any) -> Path:
    path = folder / "spec.json"
    path.write_text(json.dumps(fields))
    return path


def pure_json(result: Result) -> Any:
    assert (result.exit_code, result.stderr) == (0, "")
    return json.loads(result.stdout)


def unique_beginning(id: str, service: Service) -> str:
    """The shortest beginning that no other experiment's id has."""
    other_ids = {experiment.id for experiment in service.experiments.page(limit=500)} - {id}
    return next(id[:length] for length in range(1, len(id)) if not any(o.startswith(id[:length]) for o in other_ids))


def test_the_beginning_of_an_id_stands_for_it_wherever_an_id_is_asked_for(cli, experiment_id: str, service: Service):
    short = unique_beginning(experiment_id, service)
    run = service.runs.page(experiment_id=experiment_id)[2]
    assert run.id == f"{experiment_id}-0002"
    assert pure_json(cli("show", short, "--json"))["experiment"]["id"] == experiment_id
    assert pure_json(cli("show", f"{short}-2", "--json"))["run"]["id"] == run.id
    assert pure_json(cli("compare", short, "--json"))["experiment_id"] == experiment_id
    assert pure_json(cli("compare", short, short[:9], "--json"))["experiments"] == [experiment_id]
    assert pure_json(cli("edit", short, "--label", "paper", "--json"))["labels"] == ["paper"]
    assert cli("cancel", f"{short}-0002").stdout == f"run {run.id}: cancelled\n"
    assert cli("cancel", short).stdout.startswith(f"experiment {experiment_id}: ")
    assert cli("show", experiment_id).stdout == cli("show", short).stdout


def test_an_id_that_is_none_says_which_may_have_been_meant(cli, experiment_id: str, service: Service):
    wrong = experiment_id[:4] + ("0" if experiment_id[4] != "0" else "1") + experiment_id[5:]
    assert (cli("show", wrong).exit_code, cli("show", f"{wrong}-0001").exit_code) == (1, 1)
    firsts = [experiment.id[0] for experiment in service.experiments.page(limit=500)]
    while len(set(firsts)) == len(firsts):
        firsts.append(submitted(service, name=f"number {len(firsts)}")[0])
    common = next(letter for letter in firsts if firsts.count(letter) > 1)
    statuses = [run.status for run in service.runs.page()]
    for verb in ("show", "cancel"):
        result = cli(verb, common)
        assert (result.exit_code, result.stdout) == (1, "")
        assert f"'{common}'; several" in result.stderr
    assert [run.status for run in service.runs.page()] == statuses
    assert cli("show", "nothing/like it").exit_code == 1


def test_submit_says_the_id_and_what_is_next(cli, tmp_path: Path, service: Service):
    result = cli("submit", written(tmp_path, comparison_fields()))
    newest = service.experiments.page(limit=1)[0]
    submitted, dashboard, command = result.stdout.splitlines()
    assert newest.id in submitted and "4 runs" in submitted
    assert dashboard.endswith(f"{service.url}/experiments/{newest.id}")
    assert command.endswith(f"adapm-bench watch {newest.id}")


def test_validate_says_first_that_data_is_missing(cli, tmp_path: Path):
    fields = comparison_fields()
    fields["workload"]["data"] = {"dataset": "openwebtext"}
    result = cli("validate", written(tmp_path, fields))
    assert result.exit_code == 1
    assert "adapm-bench data prepare openwebtext" in result.stderr
    assert "next:" not in result.stdout


def test_validate_needs_no_service(tmp_path: Path, monkeypatch):
    monkeypatch.delenv("ADAPM_BENCH_URL", raising=False)
    monkeypatch.setenv("ADAPM_BENCH_DATA_FOLDER", str(tmp_path))
    result = CliRunner().invoke(main, ["validate", str(REPOSITORY / "docs" / "example-sweep.yaml")])
    assert result.exit_code == 0
    assert "16 trials" in result.stdout
    fields = scaling_fields(sizes=[{"model": "gpt2-nano"}, {"model": "gpt2-micro"}])
    result = CliRunner().invoke(main, ["validate", str(written(tmp_path, fields))])
    assert result.exit_code == 0
    assert "2 model sizes" in result.stdout


def test_submitting_again_under_a_key_changes_nothing(cli, tmp_path: Path):
    path = written(tmp_path, comparison_fields())
    first, repeat = (pure_json(cli("submit", path, "--key", "k", "--json")) for _ in range(2))
    assert (first["created"], repeat["created"]) == (True, False)
    assert "was already submitted" in cli("submit", path, "--key", "k").stdout


def test_submit_reads_standard_input(service: Service, monkeypatch):
    monkeypatch.setenv("ADAPM_BENCH_URL", service.url)
    result = CliRunner().invoke(main, ["submit", "-", "--json"], input=json.dumps(comparison_fields(name="piped")))
    assert pure_json(result)["experiment"]["name"] == "piped"


def test_a_faulty_specification_is_refused_with_every_fault_and_its_line(cli, tmp_path: Path):
    path = tmp_path / "faulty.yaml"
    text = "name: x\nworkload: {model: gpt2-tiny, budget: {steps: 9}}\nseeds: []\n"
    path.write_text(f"{text}candidates:\n  - optimizer: sgdd\n    learning_rates:\n      - -1\n")
    result = cli("submit", path)
    lines = result.stderr.splitlines()
    assert (result.exit_code, result.stdout) == (2, "")
    assert "nothing was changed" in lines[0]
    for line, beginning in zip(
        lines[1:],
        ('5:5: /candidates/0/optimizer: "sgdd": ', "7:9: /candidates/0/learning_rates/0: -1: ", "3:1: /seeds: []: "),
        strict=True,
    ):
        assert line.startswith(f"  {path}:{beginning}")
    assert "sgd?" in lines[1]


def test_show_knows_experiments_and_runs(cli, experiment_id: str, service: Service):
    run = service.runs.page(experiment_id=experiment_id)[0]
    shown = pure_json(cli("show", experiment_id, "--json"))
    assert shown["experiment"]["id"] == experiment_id
    assert [run["id"] for run in shown["runs"]] == [run.id for run in service.runs.page(experiment_id=experiment_id)]
    story = pure_json(cli("show", run.id, "--json"))
    assert (story["run"]["id"], story["attempts"], len(story["events"])) == (run.id, [], 1)
    assert "4: 4 queued" in cli("show", experiment_id).stdout
    assert story["standing"]["position"] is not None
    assert "seed 1" in cli("show", run.id).stdout
    assert "in the queue" in cli("show", run.id).stdout


def test_compare_prints_the_leaderboard_and_the_same_figures_as_json(cli, experiment_id: str, service: Service):
    comparison = pure_json(cli("compare", experiment_id, "--json"))
    assert comparison == service.analysis.compare(experiment_id).model_dump(mode="json")
    text = cli("compare", experiment_id).stdout
    assert "not complete" in text
    assert "adapm" in text


def test_pause_resume_and_retry_know_experiments_and_runs(cli, experiment_id: str, service: Service):
    run = service.runs.page(experiment_id=experiment_id)[0]
    assert cli("pause", run.id).stdout == f"run {run.id}: paused\n"
    assert cli("pause", experiment_id).stdout == f"experiment {experiment_id}: 4: 4 paused\n"
    assert "4: 4 paused" in cli("show", experiment_id).stdout
    assert cli("resume", experiment_id).stdout == f"experiment {experiment_id}: 4: 4 queued\n"
    cli("cancel", run.id)
    refused = cli("resume", run.id)
    assert (refused.exit_code, "retry" in refused.stderr) == (1, True)
    assert cli("retry", run.id).stdout == f"run {run.id}: queued\n"


def test_what_hinders_all_runs_is_said_by_verbs_that_queue_and_by_watch(tmp_path: Path, monkeypatch):
    """A floor of free space that no disk has: the service begins no run."""
    reason = "no run is begun: the disk of"
    with serving(tmp_path, free_bytes=2**53) as service:
        monkeypatch.setenv("ADAPM_BENCH_URL", service.url)
        result = CliRunner().invoke(main, ["submit", str(written(tmp_path, comparison_fields()))])
        assert result.exit_code == 0 and reason in result.stderr and reason not in result.stdout
        (experiment,) = service.experiments.page()
        (first, *_) = service.runs.page(experiment_id=experiment.id)
        cancelled = CliRunner().invoke(main, ["cancel", first.id])
        retried = CliRunner().invoke(main, ["retry", first.id])
        cloned = CliRunner().invoke(main, ["clone", experiment.id, "--json"])
        assert (reason in cancelled.stderr, reason in retried.stderr, reason in cloned.stderr) == (False, True, True)
        log = tmp_path / "watch.log"
        command = [sys.executable, "-m", "api.cli", "watch", experiment.id]
        with log.open("wb") as file, subprocess.Popen(command, stdout=file, stderr=file) as watching:
            until(lambda: reason in log.read_text(), "watch says why it waits")
            service.experiments.apply(experiment.id, RunAction.CANCEL)
            assert watching.wait(60) == 1


def test_watch_ends_with_the_experiment_and_tells_by_its_exit_code_that_runs_are_missing(cli, experiment_id: str):
    cli("cancel", experiment_id)
    result = cli("watch", experiment_id)
    assert result.exit_code == 1
    assert "4/4 runs ended" in result.stdout
    assert json.loads(cli("watch", experiment_id, "--json").stdout)["counts"]["by_status"] == {"cancelled": 4}


@pytest.mark.parametrize("words", [("ls",), ("compare", "x", "--json")])
def test_no_service_is_exit_code_3_and_says_how_to_start_one(words: tuple[str, ...], monkeypatch):
    monkeypatch.setattr("api.client.client.FIRST_PAUSE_SECONDS", 0.01)
    result = CliRunner().invoke(main, [*words, "--url", "http://127.0.0.1:9"])
    assert (result.exit_code, result.stdout) == (3, "")
    assert "http://127.0.0.1:9" in result.stderr and "adapm-bench up" in result.stderr


def test_the_url_comes_from_the_note_of_the_data_folder(service: Service, tmp_path: Path, monkeypatch, experiment_id):
    lock = lock_data_folder(tmp_path, print)
    write_note(tmp_path, service.url)
    monkeypatch.delenv("ADAPM_BENCH_URL", raising=False)
    monkeypatch.setenv("ADAPM_BENCH_DATA_FOLDER", str(tmp_path))
    result = CliRunner().invoke(main, ["ls", "--json"])
    os.close(lock)
    assert pure_json(result)[0]["id"] == experiment_id


@pytest.mark.parametrize("words", [("ls",), ("submit", "spec.json")])
def test_a_service_of_another_data_folder_is_left_alone(
    words: tuple[str, ...], service: Service, tmp_path: Path, monkeypatch
):
    """It listens where this folder's would: what is asked of it, or deleted, would be somebody else's."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "spec.json").write_text(json.dumps({"kind": "comparison"}))
    monkeypatch.delenv("ADAPM_BENCH_URL", raising=False)
    monkeypatch.setenv("ADAPM_BENCH_DATA_FOLDER", str(tmp_path / "data"))
    monkeypatch.setenv("ADAPM_BENCH_PORT", service.url.rpartition(":")[2])
    result = CliRunner().invoke(main, [*words])
    assert (result.exit_code, result.stdout) == (3, "")
    assert str(tmp_path / "data") in result.stderr and "$ADAPM_BENCH_URL" in result.stderr


@pytest.mark.parametrize("words", [("ls",), ("doctor", "--settings")])
def test_an_environment_variable_that_is_no_setting_is_named(words: tuple[str, ...], monkeypatch):
    monkeypatch.delenv("ADAPM_BENCH_URL", raising=False)
    monkeypatch.setenv("ADAPM_BENCH_PORT", "http")
    result = CliRunner().invoke(main, list(words))
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("ADAPM_BENCH_PORT=http")


@pytest.mark.parametrize("verb", ["optimizers", "models"])
def test_the_catalogs_need_no_service(verb: str, monkeypatch):
    monkeypatch.setenv("ADAPM_BENCH_URL", "http://127.0.0.1:9")
    names = [item["name"] for item in pure_json(CliRunner().invoke(main, [verb, "--json"]))]
    table = CliRunner().invoke(main, [verb]).stdout
    assert names
    assert all(name in table for name in names)


def test_an_optimizer_is_shown_with_its_options():
    text = CliRunner().invoke(main, ["optimizers", "adapm"]).stdout
    assert "rank_ratio" in text
    unknown = CliRunner().invoke(main, ["optimizers", "AdaPM"])
    assert unknown.exit_code == 1
    assert "'AdaPM'; did you mean adapm?" in unknown.stderr


def test_a_faulty_run_specification_is_refused_before_anything_is_loaded(tmp_path: Path):
    path = written(tmp_path, {"workload": {"model": "gpt2-tiny", "budget": {"steps": 0}}, "seed": -1})
    result = CliRunner().invoke(main, ["run", str(path)])
    assert (result.exit_code, result.stdout) == (2, "")
    for fault in ("1:48: /workload/budget/steps: 0: ", "1:1: /optimizer: ", "1:62: /seed: -1: "):
        assert f"  {path}:{fault}" in result.stderr


def test_run_and_submit_name_each_other_for_a_file_of_the_others_kind(tmp_path: Path):
    for verb, fields, right_verb in (("run", comparison_fields(), "submit"), ("submit", RUN, "run")):
        path = written(tmp_path, fields)
        result = CliRunner().invoke(main, [verb, str(path)])
        assert (result.exit_code, result.stdout) == (2, "")
        assert f"adapm-bench {right_verb} {path}" in result.stderr


def test_run_writes_over_nothing_that_is_not_its_own(tmp_path: Path):
    command = ["run", str(written(tmp_path, RUN | {"seed": 1})), "--out", str(tmp_path / "out")]
    (tmp_path / "out").mkdir()
    result_file = tmp_path / "out" / "result.json"
    for content in (f'{{"spec_hash": "{"ab" * 32}"}}', '{"step', "[]"):
        result_file.write_text(content)
        result = CliRunner().invoke(main, command, catch_exceptions=False)
        assert (result.exit_code, result.stdout) == (2, "")
        assert "has a result.json of another run" in result.stderr
        assert "--again" in result.stderr and "--out FOLDER" in result.stderr
        assert (list(result_file.parent.iterdir()), result_file.read_text()) == ([result_file], content)


@pytest.mark.slow
def test_run_trains_without_any_service(tmp_path: Path):
    prepare_made_dataset(tmp_path / "data" / "datasets")
    spec = {
        "workload": {
            "model": "gpt2-tiny",
            "data": {"sequence_length_tokens": 16},
            "budget": {"steps": 3, "batch_sequences": 2},
            "evaluation": {"sequences": 2},
        },
        "optimizer": {"name": "adapm", "lr": 0.002},
        "seed": 1,
    }
    command = ["run", str(written(tmp_path, spec)), "--out", str(tmp_path / "out")]
    environment = {"ADAPM_BENCH_DATA_FOLDER": str(tmp_path / "data")}
    result = subprocess.run(
        [sys.executable, "-m", "api.cli", *command, "--json"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        env=os.environ | environment,
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert json.loads(result.stdout)["steps"] == 3
    assert json.loads((tmp_path / "out" / "result.json").read_text()) == json.loads(result.stdout)

    def repeated(*more: str) -> str:
        return CliRunner().invoke(main, [*command, *more], env=environment, catch_exceptions=False).stdout

    assert json.loads(repeated("--json")) == json.loads(result.stdout), "what was measured is not replaced"
    assert "--again" in repeated()
    second_result = json.loads(repeated("--again", "--json"))
    assert second_result["final_val_loss"] == json.loads(result.stdout)["final_val_loss"]
    assert second_result["device_seconds"] != json.loads(result.stdout)["device_seconds"]


def test_a_run_without_its_data_says_so_before_torch_is_imported(tmp_path: Path):
    workload = {"model": "gpt2-tiny", "data": {"dataset": "own/nothing"}, "budget": {"steps": 1}}
    fields = {"workload": workload, "optimizer": {"name": "adamw", "lr": 0.001}, "seed": 1}
    program = f"""
import sys
from typer.testing import CliRunner
from api.cli import main
result = CliRunner().invoke(main, ["run", {str(written(tmp_path, fields))!r}])
print(result.exit_code, result.stderr, sorted({{"torch", "transformers"}} & set(sys.modules)))
"""
    environment = os.environ | {"ADAPM_BENCH_DATA_FOLDER": str(tmp_path / "data")}
    process = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert process.stdout.startswith("1 ")
    assert "adapm-bench data prepare own/nothing --tokenizer byte --from FILES" in process.stdout
    assert process.stdout.endswith(" []\n")


@pytest.mark.parametrize("arguments", [("api", "--port", "0"), ("dispatcher", "--service-url", "http://127.0.0.1:9")])
def test_a_process_of_the_service_without_its_data_folder_ends_with_a_sentence(tmp_path: Path, arguments):
    command = [sys.executable, "-m", "api.cli", *arguments, "--data", str(tmp_path / "missing")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 1
    assert ended.stderr.startswith("error: the database") and "Traceback" not in ended.stderr
