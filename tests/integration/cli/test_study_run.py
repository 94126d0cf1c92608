"""The three cheapest studies for real: two that are computed, and one that trains, through the command line."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from api.cli import main
from api.cli.studies.study import StudyRunner
from api.client.client import Client
from orchestrator.jobs import RunStatus
from orchestrator.studies import registry
from orchestrator.studies.result import read_result, result_path
from orchestrator.studies.study import Study, StudyScale
from tests.factories.fork_server import fork_server
from tests.factories.stores import claim
from tests.integration.api_service import Service, serving
from worker.attempt import execute

STEPS = 24
"""The steps of each training, instead of 200: two are observed, half-way and at the end."""


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    """A service whose runs are trained, each in a process of its own, and which knows the shorter study."""
    studies = tuple(
        shortened(study) if study.name == "gradient-sparsity" else study for study in registry.all_studies()
    )
    monkeypatch.setattr(registry, "_shipped_studies", lambda: studies)
    (tmp_path / "service").mkdir()
    with serving(tmp_path / "service") as running, trained(running):
        yield running


def shortened(study: Study) -> Study:
    """The study, whose tiny scale has fewer steps."""
    ((part, spec),) = study.scales[StudyScale.TINY].items()
    fields = spec.model_dump(mode="json")
    fields["workload"]["budget"]["steps"] = STEPS
    for watched in ("evaluation", "probes"):
        fields["workload"][watched]["every_steps"] = STEPS // 2
    short = type(spec).model_validate(fields)
    return study.model_copy(update={"scales": {StudyScale.TINY: {part: short}}})


@contextmanager
def trained(service: Service) -> Iterator[None]:
    """Train the waiting runs of the service within the block, one after the other."""
    processes, stop = fork_server(), threading.Event()

    def train() -> None:
        while not stop.wait(0.05):
            for lease in claim(service.queue, cpus=1, limit=1):
                arguments = (service.url, lease.run_id, lease.attempt, lease.token)
                process = processes.Process(target=execute, args=arguments)
                process.start()
                process.join()

    thread = threading.Thread(target=train)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_three_studies_end_with_verdicts_and_a_report(service: Service, tmp_path: Path) -> None:
    """Counted, computed and trained; a second run finds the experiment and trains nothing."""

    def study(*arguments: object) -> str:
        return said(*arguments).stdout

    def said(*arguments: object) -> Result:
        result = CliRunner().invoke(
            main, ["study", *map(str, arguments), "--data", str(tmp_path)], catch_exceptions=False
        )
        assert result.exit_code == 0, result.output
        return result

    text = study("run", "memory-table", "debias-theorem", "gradient-sparsity", "--url", service.url)
    assert "own result: supported" in text
    assert "own result: contradicted" in text
    assert "gradient-sparsity: submitted" in text
    repeat = said("run", "gradient-sparsity", "--url", service.url, "--json")
    assert "gradient-sparsity: using" in repeat.stderr
    assert "3/3 runs ended" in repeat.stderr
    (answer,) = json.loads(repeat.stdout)
    assert (answer["study"], answer["scale"]) == ("gradient-sparsity", "tiny")
    assert answer["finding"]["answer"] in ("supported", "contradicted", "undecided")
    record = read_result(result_path(tmp_path / "studies", "gradient-sparsity", StudyScale.TINY))
    assert record is not None
    assert [run.ended for run in record.parts[0].runs] == ["converged"] * 3
    assert set(record.parts[0].runs[0].observed) >= {"embedding", "query", "attention output"}
    row = next(line for line in study("report").splitlines() if "](#gradient-sparsity)" in line)
    assert "| tiny |" in row
    assert all(measure["verdict"] is None or measure["verdict"] in row for measure in answer["finding"]["measures"])


def test_a_plan_that_the_service_has_otherwise_is_trained_anew(tmp_path: Path) -> None:
    """As where one of the two is of another version."""
    own_study = registry.study("gradient-sparsity")
    with serving(tmp_path) as running, Client(running.url) as client:
        runner = StudyRunner(scale=StudyScale.TINY, folder=tmp_path)
        own_ids = runner.submit(client, own_study)
        assert runner.submit(client, own_study) == own_ids
        shortened_study = shortened(own_study)
        other_ids = runner.submit(client, shortened_study)
        assert other_ids != own_ids
        ((part, spec),) = shortened_study.scales[StudyScale.TINY].items()
        client.cancel_experiment(other_ids[part])
        assert runner.submit(client, shortened_study) == other_ids
        experiment = client.experiment(other_ids[part])
        assert experiment.spec == spec
        assert experiment.counts.by_status == {RunStatus.QUEUED: experiment.counts.total}, "what was cancelled goes on"
