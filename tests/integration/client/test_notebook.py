"""docs/notebook.ipynb runs as it stands against a running service, cell by cell, and shows what it says it shows."""

import ast
import json
from pathlib import Path
from typing import Any

import pytest

from tests.architecture.tree import REPOSITORY
from tests.factories.stores import claim, result
from tests.integration.api_service import Service, serving
from worker.records.protocol import PointsBatch
from worker.records.result import Point

NOTEBOOK = REPOSITORY / "docs" / "notebook.ipynb"


def cells(kind: str) -> list[dict[str, Any]]:
    """The notebook's cells of that kind."""
    return [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == kind]


def executed(code: str, names: dict[str, Any]) -> Any:
    """Run a cell as a notebook does; its last expression's value, if it ends in one."""
    tree = ast.parse(code)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, NOTEBOOK.name, "exec"), names)  # the document's own code
    return eval(compile(ast.Expression(last.value), NOTEBOOK.name, "eval"), names) if last else None  # type: ignore[attr-defined]


def work(service: Service) -> None:
    """A worker's part for both runs: points with validation losses, and results."""
    leases = claim(service.queue, cpus=2, limit=2)
    assert len(leases) == 2
    for lease in leases:
        points = tuple(
            Point(step=step, tokens=step * 256, train_loss=5.0 - step / 20, val_loss=5.0 - step / 25)
            for step in (5, 10, 15, 20)
        )
        service.attempts.hello(lease.run_id, 1, lease.token)
        service.attempts.append_points(lease.run_id, 1, lease.token, PointsBatch.from_points(sequence=0, points=points))
        service.attempts.finish(lease.run_id, 1, lease.token, result(steps=20))


def test_every_cell_runs_and_the_plot_has_a_line_for_each_candidate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The worker's part is done between two cells: a worker beside them that broke down would leave `watch` waiting."""
    from matplotlib import pyplot

    pyplot.switch_backend("agg")
    names: dict[str, Any] = {}
    shown = []
    with serving(tmp_path) as service:
        monkeypatch.setenv("ADAPM_BENCH_URL", service.url)
        try:
            for cell in cells("code"):
                shown.append(executed("".join(cell["source"]), names))
                if "submit" in "".join(cell["source"]):
                    work(service)
            lines = names["axes"].get_lines()
            assert sorted(line.get_label() for line in lines) == ["adamw", "adapm"]
            assert [list(line.get_xdata()) for line in lines] == [[5, 10, 15, 20]] * 2
            assert list(lines[0].get_ydata()) == pytest.approx([4.8, 4.6, 4.4, 4.2])
        finally:
            pyplot.close("all")
            if "client" in names:
                names["client"].close()
    assert "2 of 2 runs" in capsys.readouterr().out
    table = next(value for value in shown if value is not None)
    assert list(table["status"]) == ["succeeded", "succeeded"]
    assert table["result.optimizer_state_bytes"].gt(0).all()
    assert len(names["comparison"].rows) == 2


def test_it_is_kept_without_outputs_and_as_jupyter_reads_it() -> None:
    notebook = json.loads(NOTEBOOK.read_text())
    assert (notebook["nbformat"], notebook["metadata"]["language_info"]["name"]) == (4, "python")
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells("code"))
    plot = next("".join(cell["source"]) for cell in cells("code") if "series_dataframe" in "".join(cell["source"]))
    assert len(plot.splitlines()) == 3
    assert len(cells("markdown")) >= 3
