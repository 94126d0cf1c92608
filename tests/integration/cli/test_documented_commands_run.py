"""Every `adapm-bench` command of the documents' shell blocks is carried out, page by page and in the order of the page.

What is not is named below, with where it is tried instead. A new command in a document runs here without a line of this
file, or fails until there is one.
"""

import gzip
import json
import os
import re
import shlex
import shutil
from collections.abc import Iterator
from glob import glob
from pathlib import Path
from textwrap import dedent

import pytest
from typer.testing import CliRunner

from api.cli import main
from api.client import start_run
from orchestrator.kinds.sweep import SweepSpec
from orchestrator.webhooks.policy import WebhookPolicy
from tests.architecture.tree import REPOSITORY
from tests.factories.dataset import MadeSource, prepare_made_dataset
from tests.factories.stores import comparison_spec
from tests.factories.sweep import add_trials
from tests.integration.api.test_scaling import play
from tests.integration.api_service import Service, serving

DOCUMENTS = sorted({REPOSITORY / "README.md", *(REPOSITORY / "docs").glob("*.md")} - {REPOSITORY / "docs" / "LOG.md"})

ELSEWHERE = {
    r"up$": "test_cli.py and tests/chaos start it",
    r"(api|dispatcher) ": "make cluster-test",
    r"doctor$": "test_doctor.py: what it finds is this machine's",
    r"run run.(yaml|json)": "service/test_main_job.py: seconds of training",
    r"data prepare (openwebtext|c4|fineweb|DATASET) ": "the hub; test_cli_data.py has a copy of one",
    r"data prepare own/pages ": "test_cli_data.py: GPT-2's tokenizer is a download",
    r"optimizers \w+ --check": "test_own_optimizer.py: the package is its own",
    r"import mlflow ": "test_imports.py: MLflow makes its own database",
    r"(publish|verify|board) ": "service/test_main_job.py, tests/unit/api/bundles: of runs that were really trained",
    r"study run ": "test_study_run.py: minutes to an hour",
    r"models .*--memory ": "test_plan.py: counting the passes of large models takes a minute and more",
    r"--install-completion": "it writes into the files of the shell that calls",
}


def shell_commands(document: Path) -> list[str]:
    """Return the arguments of `adapm-bench` at the start of commands, in fenced and in indented blocks, without
    remarks."""
    text = document.read_text().replace("\\\n", " ")
    fenced = "".join(re.findall(r"^```sh\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL))
    indented = "".join(re.findall(r"^    adapm-bench.*\n", text, flags=re.MULTILINE))
    lines = (fenced + dedent(indented)).replace(" && ", "\n")
    commands = re.findall(r"^(?:\.venv/bin/)?adapm-bench (.*)$", lines, flags=re.MULTILINE)
    return [re.sub(r"\s+# .*", "", line).strip() for line in commands]


PAGES = {document.name: commands for document in DOCUMENTS if (commands := shell_commands(document))}


def elsewhere(command: str) -> str | None:
    """Return the test of a command that is not carried out here."""
    return next((test for pattern, test in ELSEWHERE.items() if re.match(pattern, command)), None)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    """A service whose operator names the host of the documents' webhooks."""
    (tmp_path / "data").mkdir()
    with serving(tmp_path / "data") as running:
        running.webhooks.policy = WebhookPolicy.parse("https://hooks.example", "")
        yield running


@pytest.fixture
def folder(service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a reader: the documents, texts and runs of their own, a note, the files that pages show."""
    shutil.copytree(REPOSITORY / "docs", tmp_path / "docs", ignore=shutil.ignore_patterns("images"))
    texts = [f"{number} {document.text}" for number in range(3) for document in MadeSource().documents()]
    for name in ("notes", "texts"):
        (tmp_path / name).mkdir()
        for number, text in enumerate(texts):
            (tmp_path / name / f"{number}.txt").write_text(text)
    (tmp_path / "dump").mkdir()
    with gzip.open(tmp_path / "dump" / "forum.jsonl.gz", "wt") as file:
        file.writelines(json.dumps({"body": text}) + "\n" for text in texts)
    (tmp_path / "backup").mkdir()
    (tmp_path / "note.txt").write_text("what came of it")
    yaml = "".join((REPOSITORY / "docs" / page).read_text() for page in ("index.md", "campaigns.md"))
    for block in re.findall(r"^```yaml\n(# .*?)^```", yaml, re.M | re.S):
        (tmp_path / block.split("\n")[0].removeprefix("# ")).write_text(block)
    prepare_made_dataset(tmp_path / "data" / "datasets")
    leave_logs_of_other_tools(tmp_path)
    monkeypatch.chdir(tmp_path)
    train_by_own_loop()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("ADAPM_BENCH_KEY", "")
    monkeypatch.delenv("ADAPM_BENCH_KEY")
    monkeypatch.setenv("ADAPM_BENCH_URL", service.url)
    monkeypatch.setenv("ADAPM_BENCH_DATASET_URL", f"file://{tmp_path}/shared")
    monkeypatch.setenv("ADAPM_BENCH_DATA_FOLDER", str(tmp_path / "data"))
    return tmp_path


def leave_logs_of_other_tools(folder: Path) -> None:
    """Write the files of own-runs.md to the places from which it imports them."""
    sources = REPOSITORY / "tests" / "sources" / "files"
    shutil.copytree(sources / "wandb", folder / "wandb")
    shutil.copytree(sources / "tensorboard", folder / "runs")
    for run in (sources / "trainer_state").iterdir():
        shutil.copytree(run / "checkpoint-8", folder / "out" / run.name)
    tracked = folder / ".cache" / "huggingface" / "trackio"
    tracked.mkdir(parents=True)
    shutil.copy(sources / "trackio" / "a study.db", tracked / "study.db")
    (folder / "logs" / "muon").mkdir(parents=True)
    (folder / "logs" / "muon" / "seed1.txt").write_text("step 9: train loss 3.0, val loss 3.1\n")
    (folder / "sweep.csv").write_text("arm,lr,seed,step,valid ce\nadamw,0.002,1,100,3.0\nmuon,0.02,1,100,2.9\n")


def as_a_shell_does(line: str) -> list[str]:
    """The words of a command, with the names of files where it has a pattern of them."""
    return [name for word in shlex.split(line) for name in (sorted(glob(word)) if "*" in word else ()) or (word,)]


def train_by_own_loop() -> None:
    """Write the spool of own-runs.md's loop, without a service."""
    for candidate, lr, loss in (("adamw", 0.002, 3.0), ("muon", 0.02, 2.9)):
        for seed in (1, 2, 3):
            with start_run(
                experiment="muon against adamw",
                candidate=candidate,
                lr=lr,
                seed=seed,
                workload="gpt2-124m, 2.5 B tokens",
            ) as run:
                run.log(step=100, val_loss=loss + 0.001 * seed, tokens=52_428_800)


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_work(page: str, service: Service, folder: Path) -> None:
    failed = {}
    ids = {"ID": ""}
    for command in PAGES[page]:
        if elsewhere(command) is not None:
            continue
        if "ID" in shlex.split(command) and not ids["ID"]:
            ids["ID"] = service.experiments.submit(comparison_spec()).experiment.id
        end_everything(service)
        line = re.sub(r"\bID\b", ids["ID"], command).replace("~/", f"{folder}/")
        arguments, _, target = line.partition(" > ")
        result = CliRunner().invoke(main, as_a_shell_does(arguments), catch_exceptions=False)
        if target:
            Path(target).write_text(result.stdout)
        if result.exit_code != 0:
            failed[command] = result.output
        if match := re.search(r"^submitted (\w+)", result.output, flags=re.MULTILINE):
            ids["ID"] = match[1]
        if command.startswith("keys create"):  # the first one opens the service to the next commands
            os.environ.setdefault("ADAPM_BENCH_KEY", result.stdout.strip())
            ids["ID"] = json.loads(CliRunner().invoke(main, ["keys", "ls", "--json"]).stdout)[0]["id"]
    assert failed == {}


def end_everything(service: Service) -> None:
    """Carry out whatever waits: the trials of sweeps, and every run."""
    for experiment in service.experiments.page():
        if isinstance(spec := experiment.spec, SweepSpec) and not experiment.counts.done():
            by_chance = spec.model_copy(update={"algorithm": "random"})  # TPE would draw them in a process of its own
            add_trials(service.database, experiment.id, by_chance, (spec.trials or 4) * len(spec.candidates))
    play(service)


def test_what_is_tried_elsewhere_is_in_a_document() -> None:
    commands = [command for page in PAGES.values() for command in page]
    assert len(commands) >= 50
    assert [pattern for pattern in ELSEWHERE if not any(re.match(pattern, command) for command in commands)] == []
