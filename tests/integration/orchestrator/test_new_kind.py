"""A kind of experiment is one module and one line: a fourth one, added so to a copy of the product, works."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.architecture.tree import REPOSITORY

REGISTRY = Path("orchestrator/kinds/registry.py")
SWEEP_IMPORT = "from orchestrator.kinds.sweep import SweepSpec\n"
SWEEP_LINE = '    | Annotated[SweepSpec, Tag("sweep")],\n'
MODULE = '''"""Repetitions: one optimizer at one learning rate, again and again: how much do seeds matter?"""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from orchestrator.design import Cell
from orchestrator.kinds.comparison import Candidate, ComparisonSpec
from orchestrator.kinds.experiment import Experiment, PlannedRun, RunBudget


class RepeatSpec(Experiment):
    """How much do seeds matter?"""

    title: ClassVar[str] = "repetition"

    kind: Literal["repeat"] = "repeat"
    repeated: Candidate
    repeats: Annotated[int, Field(strict=True, ge=2, le=100)]

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        return (self.repeated,)

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(range(self.repeats))

    def run_count(self) -> int:
        return self.repeats

    def first_runs(self) -> tuple[PlannedRun, ...]:
        return self.comparison().first_runs()

    def run_budgets(self) -> tuple[RunBudget, ...]:
        return self.comparison().run_budgets()

    def comparison(self, cell: Cell | None = None) -> ComparisonSpec:
        return ComparisonSpec(
            name=self.name, workload=self.workload, candidates=self.candidates, seeds=self.seeds,
            resources=self.resources,
        )

    def facts(self) -> tuple[tuple[str, str], ...]:
        return (("repeats", str(self.repeats)),)

    def tuning_method(self) -> str:
        return "Nothing was tuned."
'''
EXAMPLE = """\
kind: repeat
name: how much seeds matter
workload:
  model: gpt2-tiny
  budget: {steps: 240}
repeated: {optimizer: adamw, learning_rates: [0.002]}
repeats: 3
"""
USE = """
import json
import sys
from pathlib import Path

import httpx2
from typer.testing import CliRunner

import orchestrator
from api.cli import main
from api.client.client import Client
from tests.factories.serving import served

tree = Path(sys.argv[1])
assert Path(orchestrator.__file__).is_relative_to(tree)


def cli(*words):
    done = CliRunner().invoke(main, [*words])
    assert done.exit_code == 0, (words, done.output)
    return done.output


with served(tree) as site, Client(site.url) as client:
    file, url = str(tree / "repeat.yaml"), ("--url", site.url)
    cli("init", "repeat", "--out", file)
    assert json.loads(cli("init", "repeat", "--schema", "--out", "-"))["title"] == "AdaPM Bench: repeat"
    assert "a repetition of 3 runs" in cli("validate", file, *url)
    assert "how much seeds matter, 3 runs" in cli("submit", file, *url)
    (experiment,) = client.experiments()
    assert (experiment.kind, experiment.spec.repeats, experiment.counts.total) == ("repeat", 3, 3)
    site.player.finish()
    (row,) = client.compare(experiment.id).rows
    assert (row.candidate, row.val_loss.n) == ("adamw", 3)
    assert "how much seeds matter" in cli("ls", *url)
    assert "repeats           3" in cli("show", experiment.id, *url)
    assert "compare" in cli("watch", experiment.id, *url)
    for path in ("/", f"/experiments/{experiment.id}", f"/experiments/{experiment.id}/figures/curves.svg",
                 f"/v1/experiments/{experiment.id}/report", f"/new?from={experiment.id}"):
        answer = httpx2.get(site.url + path, timeout=60)
        assert answer.status_code == 200, (path, answer.text[:2000])
    described = httpx2.get(site.url + "/v1/openapi.json", timeout=60).json()
    body = described["paths"]["/v1/experiments"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert "AdaPM Bench: repeat" in {kind["title"] for kind in body["oneOf"]}
"""


def test_a_fourth_kind_is_a_module_and_a_line_and_is_submitted_run_listed_and_shown(tmp_path: Path) -> None:
    """It needs a line in the registry, and an example where `adapm-bench init` is to write one; nothing else."""
    for package in ("orchestrator", "dashboards", "api"):
        # With what Python has compiled, but for what it is just writing.
        shutil.copytree(REPOSITORY / package, tmp_path / package, ignore=shutil.ignore_patterns("*.pyc.*"))
    (tmp_path / "orchestrator/kinds/repeat.py").write_text(MODULE)
    (tmp_path / "orchestrator/specs/examples/repeat.yaml").write_text(EXAMPLE)
    registry = (tmp_path / REGISTRY).read_text()
    assert SWEEP_IMPORT in registry and SWEEP_LINE in registry
    (tmp_path / REGISTRY).write_text(
        registry.replace(SWEEP_IMPORT, f"from orchestrator.kinds.repeat import RepeatSpec\n{SWEEP_IMPORT}").replace(
            SWEEP_LINE, f'    | Annotated[RepeatSpec, Tag("repeat")]\n{SWEEP_LINE}'
        )
    )
    (tmp_path / "use.py").write_text(USE)
    environment = os.environ | {
        "PYTHONPATH": f"{tmp_path}{os.pathsep}{REPOSITORY}",
        "ADAPM_BENCH_DATA_FOLDER": str(tmp_path),
    }
    environment |= {"COLUMNS": "200"}  # no name is folded
    process = subprocess.run(
        [sys.executable, tmp_path / "use.py", tmp_path],
        env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert process.returncode == 0, process.stdout + process.stderr
