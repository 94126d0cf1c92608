"""Every verb that answers prints JSON when asked to; every ending has the exit code that docs/client.md gives it."""

import json
import math
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import Result as Printed

from api.cli import main
from api.cli.console import BAD_INPUT, FAILED, INTERRUPTED, UNREACHABLE
from api.cli.experiments.demo import DEMO, conclusion
from orchestrator.records import Conclusion
from orchestrator.store.database import newest_migration
from tests.architecture.tree import REPOSITORY
from tests.factories.stores import result
from tests.integration.api_service import Service, end_all, submitted
from worker.records.result import Result
from worker.spec.run import RunSpec

LIVE = {"up", "api", "dispatcher", "study report"}
"""Verbs that serve, and one that writes a document."""


Cli = Callable[..., Printed]


def verbs(command: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, verb in command.commands.items():
        if hasattr(verb, "commands"):
            yield from verbs(verb, f"{prefix}{name} ")
        else:
            yield prefix + name, verb


def test_every_verb_takes_json():
    verb_names = {
        name
        for name, verb in verbs(get_command(main))
        if not any("--json" in parameter.opts for parameter in verb.params)
    }
    assert verb_names == LIVE


def test_files_that_were_written_are_told_as_json(cli: Cli, service: Service, tmp_path: Path):
    id = submitted(service)
    report = tmp_path / f"{id}-report.html"
    answer = cli("export", id, "--format", "report", "-o", tmp_path, "--json").stdout
    assert json.loads(answer) == [{"file": str(report), "bytes": report.stat().st_size}]
    answer = json.loads(cli("export", id, "--out", tmp_path, "--json").stdout)
    assert [Path(file["file"]).name for file in answer] == [f"{id}-results.parquet", f"{id}-series.parquet"]
    assert all(file["bytes"] == Path(file["file"]).stat().st_size > 0 for file in answer)


def test_the_demo_concludes(cli: Cli, service: Service, monkeypatch: pytest.MonkeyPatch):
    """Played to its end, tuned first: it ends with a sentence, a picture and an address, and no rate at an edge."""
    experiment = service.experiments.submit(DEMO, f"demo-{DEMO.content_hash()[:16]}-played").experiment
    offsets = {"adamw": 0.0, "adapm": -0.05, "adapm-mini": 0.0}
    state = {"adamw": 650_000, "adapm": 360_000, "adapm-mini": 45_000}

    def played(spec: RunSpec) -> Result:
        name, seed = spec.optimizer.name, spec.seed
        loss = 2.66 + 0.008 * math.log2(spec.optimizer.lr / 4e-3) ** 2 + offsets[name] + 0.01 * (seed % 3)
        loss += {"adamw": 0.0, "adapm": 0.002 * (seed % 3), "adapm-mini": 0.01 * (seed - 3)}[name]
        return result(final_val_loss=loss).model_copy(update={"optimizer_state_bytes": state[name]})

    end_all(service, played)
    running = contextmanager(lambda *_, **__: iter([(service.url, lambda: None)]))
    monkeypatch.setattr("api.cli.experiments.demo.own_service", running)
    monkeypatch.setattr("api.cli.experiments.demo.time.time_ns", lambda: "played")
    output = cli("demo", "--again").stdout
    comparison = service.analysis.compare(experiment.id)
    rows = {row.candidate: row for row in comparison.rows}
    assert rows["adapm"].conclusion is Conclusion.BETTER
    assert not any(row.edge_of_grid for row in comparison.rows)
    assert " ".join(conclusion(comparison).split()) in " ".join(output.split())
    assert f"/experiments/{experiment.id}" in output.split("Its page: ")[1]
    assert len(list(service.runs.read_all(experiment.id))) == DEMO.run_count()


def test_the_databases_verbs_tell_json(cli: Cli, tmp_path: Path):
    folder, copy = tmp_path / "data", tmp_path / "copy.sqlite3"
    first, second = (json.loads(cli("db", "upgrade", "--data", folder, "--json").stdout) for _ in range(2))
    assert (first["before"], first["revision"]) == (None, newest_migration())
    assert second["before"] == second["revision"] == first["revision"]
    assert json.loads(cli("db", "check", "--data", folder, "--json").stdout) == {"sound": True, "faults": []}
    backup = json.loads(cli("db", "backup", copy, "--data", folder, "--json").stdout)
    assert (backup["file"], backup["bytes"]) == (str(copy), copy.stat().st_size)
    assert str(copy) in backup["way_back"]
    assert cli("db", "backup", copy, "--data", folder).exit_code == 1, "a backup overwrites nothing"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("ls",), 0),
        (("show", "nothing"), FAILED),
        (("submit", "none.yaml"), BAD_INPUT),
        (("ls", "--nonsense"), BAD_INPUT),
        (("nonsense",), BAD_INPUT),
        (("ls", "--url", "garbage"), BAD_INPUT),
        (("ls", "--url", "http://[::1"), BAD_INPUT),
        (("show", ""), BAD_INPUT),
    ],
)
def test_exit_codes_are_those_of_the_document(cli: Cli, words: tuple[str, ...], code: int):
    assert cli(*words).exit_code == code


def test_the_document_lists_every_exit_code():
    text = (REPOSITORY / "docs" / "client.md").read_text()
    assert re.findall(r"^\| (\d+) \|", text, flags=re.MULTILINE) == [
        str(code) for code in (0, FAILED, BAD_INPUT, UNREACHABLE, INTERRUPTED)
    ]
