"""The Python of README and of three pages about AdaPM runs as it stands there."""

import re
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import torch
import torch.distributed as dist
from accelerate.state import AcceleratorState, GradientState
from torch.utils.data import DataLoader

from optim.adapm import AdaPM, AdaPMMini
from tests.architecture.tree import REPOSITORY
from worker.checks.tiny_models import batch, loss_of, tiny_gpt2

DOCUMENTS = [
    *(REPOSITORY / "docs" / page for page in ("optimizers.md", "adapm.md", "roles.md")),
    REPOSITORY / "README.md",
]


def blocks() -> list[str]:
    text = "\n".join(document.read_text() for document in DOCUMENTS)
    matches = re.findall(r"^( *)```python\n(.*?)^\1```", text, flags=re.MULTILINE | re.DOTALL)
    return [dedent(code) for _, code in matches]


def heading(code: str) -> str:
    """The block's last line, for the test's name."""
    return code.strip().splitlines()[-1].strip()[:40]


@pytest.fixture(autouse=True)
def _surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A folder of its own, one process that is a group, no compiler (test_compiled.py has one), a fresh Accelerate."""
    monkeypatch.chdir(tmp_path)
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/meeting", rank=0, world_size=1)
    torch.compiler.set_stance("force_eager")
    yield
    torch.compiler.set_stance("default")
    if dist.is_initialized():
        dist.destroy_process_group()
    AcceleratorState._reset_state(True)
    GradientState._reset_state()


@pytest.mark.filterwarnings("ignore:'pin_memory' argument is set as true but no accelerator is found")
@pytest.mark.parametrize("code", blocks(), ids=heading)
def test_a_block_of_the_documents_runs(code: str):
    rows = [{"input_ids": row, "labels": row} for row in batch(0)]
    model = tiny_gpt2()
    names: dict[str, Any] = {
        "AdaPM": AdaPM,
        "AdaPMMini": AdaPMMini,
        "model": model,
        "dataset": rows,
        "data": DataLoader(rows, batch_size=2),  # type: ignore[arg-type]  # a list is a dataset
        "evaluate": lambda model: loss_of(model, 0).item(),
    }
    exec(compile(code, heading(code), "exec"), names)  # the document's own code
    optimizer = names.get("optimizer")
    if optimizer is not None:
        loss_of(model, 1).backward()
        optimizer.step()


def test_the_documents_have_blocks():
    assert len(blocks()) >= 11
