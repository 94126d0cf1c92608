"""docs/notebook.ipynb runs as it stands against a running service, cell by cell, and shows what it says it shows."""

import ast
import json
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).parents[2] / "docs" / "notebook.ipynb"


def cells(kind: str) -> list[dict[str, Any]]:
    """The notebook's cells of that kind."""
    return [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == kind]


def executed(code: str, names: dict[str, Any]) -> Any:
    """Run a cell as a notebook does; its last expression's value, if it ends in one."""
    tree = ast.parse(code)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, NOTEBOOK.name, "exec"), names)  # the document's own code
    return eval(compile(ast.Expression(last.value), NOTEBOOK.name, "eval"), names) if last else None  # type: ignore[attr-defined]


@pytest.mark.slow
def test_every_cell_runs_and_the_plot_has_a_line_for_each_candidate(
    service_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from matplotlib import pyplot

    monkeypatch.setenv("ADAPM_BENCH_URL", service_url)
    pyplot.switch_backend("agg")
    names: dict[str, Any] = {}
    try:
        shown = [executed("".join(cell["source"]), names) for cell in cells("code")]
        assert sorted(line.get_label() for line in names["axes"].get_lines()) == ["adamw", "adapm"]
        assert all(len(line.get_xdata()) >= 4 for line in names["axes"].get_lines())
    finally:
        pyplot.close("all")
        names["client"].close()
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
