"""Imports of the export to MLflow, and their time."""

import subprocess
import sys


def test_sqlalchemy_is_whole_before_a_thread_loads_mlflow() -> None:
    """While MLflow's import has `sqlalchemy.orm` half loaded, a query in any other thread would fail."""
    script = "import sys, orchestrator.export.exporter; "
    script += "assert 'sqlalchemy.orm' in sys.modules and 'mlflow' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)
