"""The api process and every client start fast and small: importing them loads no torch, Ray or MLflow."""

import subprocess
import sys

import pytest

from orchestrator.store.database import Database
from tests.architecture.tree import REPOSITORY

HEAVY = ("torch", "ray", "mlflow", "transformers", "datasets", "matplotlib")


LIGHT = (
    "optim.catalog",
    "worker.spec.run",
    "worker.records.protocol",
    "orchestrator.services.composition",
    "api.client.client",
    "api.imports.readers",
    "api.cli",
    "api.app",
)
"""The modules, one after another in one process: the first after which something heavy is loaded is the one that loads
it."""


def test_importing_loads_nothing_heavy():
    program = (
        f"import importlib, sys\nfor name in {LIGHT!r}:\n    importlib.import_module(name)\n"
        f"    print(name, *sorted(set(sys.modules) & set({HEAVY!r})))"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=False
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.split() == list(LIGHT)


NEEDED_BY_SOME_REQUESTS = ("scipy", "alembic", "httpx2", "optuna", "pandas", "pyarrow", "sqlalchemy.orm")
NEEDED_BY_SOME_VERBS = ("fastapi", "httpx2", "jinja2", "numpy", "sqlalchemy", "uvicorn")


@pytest.mark.parametrize(
    ("start", "left_out"),
    [
        (
            "import contextlib, io, api.cli\nwith contextlib.redirect_stdout(io.StringIO()): "
            "api.cli.main(['--help'], standalone_mode=False)\n",
            (*HEAVY, *NEEDED_BY_SOME_REQUESTS, *NEEDED_BY_SOME_VERBS),
        ),
        (
            "import api.cli, api.processes.api; from orchestrator.store.database import Database; "
            "Database(URL).migrate()",  # what is the newest already
            (*HEAVY, *NEEDED_BY_SOME_REQUESTS),
        ),
    ],
    ids=["the help of the command line", "the api process over a database that is there"],
)
def test_a_start_loads_only_what_every_call_needs(start, left_out, tmp_path):
    """Each of these costs a tenth of a second or more; what needs one imports it where it is used."""
    url = f"sqlite:///{tmp_path / 'bench.sqlite3'}"
    Database(url).migrate()
    program = f"import sys; URL = {url!r}\n{start}\nprint(*sorted(set(sys.modules) & set({left_out!r})))"
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=False
    )
    assert (result.returncode, result.stderr, result.stdout.split()) == (0, "", [])


def test_sqlalchemy_is_whole_before_a_thread_loads_mlflow() -> None:
    """While MLflow's import has `sqlalchemy.orm` half loaded, a query in any other thread would fail."""
    script = "import sys, orchestrator.export.exporter; "
    script += "assert 'sqlalchemy.orm' in sys.modules and 'mlflow' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)
