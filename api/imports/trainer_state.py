"""`trainer_state.json`, which Hugging Face's Trainer writes into each checkpoint, and its users beside the model.

It says what was logged, and neither the optimizer nor the seed: these are in the names of folders, or to be given.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from api.imports.source import ReadRequest, SourceError, SourcePoint, SourceRun, find_files, reading, split_metrics
from orchestrator.external_runs import ExternalState


def read(request: ReadRequest) -> Iterator[SourceRun]:
    """Yield a run for each output folder: of its checkpoints the one that went farthest says all that the others do."""
    newest: dict[Path, tuple[int, str, Path, dict[str, Any]]] = {}
    for path, way in find_files(request.places, "trainer_state.json"):
        with reading(path, "JSON"):
            state = json.loads(path.read_text("utf-8"))
        if not isinstance(state, dict) or not isinstance(state.get("log_history"), list):
            raise SourceError(f"{path} has no log_history: it is no trainer_state.json")
        folder = path.parent.resolve()
        is_checkpoint = folder.name.startswith("checkpoint-")
        output = folder.parent if is_checkpoint else folder
        relative_path = way.parent if is_checkpoint else way
        name = output.name if relative_path == Path() else relative_path.as_posix()
        step = int(state.get("global_step") or 0)
        if output not in newest or step >= newest[output][0]:
            newest[output] = step, name, path, state
    for step, name, path, state in newest.values():
        yield _run(path, name, step, state)


def _run(path: Path, name: str, step: int, state: dict[str, Any]) -> SourceRun:
    modified_at = path.stat().st_mtime
    not_numbers: set[str] = set()
    points = []
    for entry in state["log_history"]:
        if not isinstance(entry, dict) or not isinstance(entry.get("step"), int) or entry["step"] < 0:
            raise SourceError(f"{path}: an entry of log_history has no step: {str(entry)[:80]}")
        metrics = split_metrics({key: value for key, value in entry.items() if key != "step"}, not_numbers)
        points.append(SourcePoint(at=modified_at, step=entry["step"], metrics=metrics))
    last = int(state.get("max_steps") or 0)
    has_summary = any("train_runtime" in entry for entry in state["log_history"])
    return SourceRun(
        name=name,
        config={
            key: state[key]
            for key in ("max_steps", "num_train_epochs", "train_batch_size")
            if state.get(key) is not None
        },
        facts={key: value for key, value in state.items() if not isinstance(value, dict | list) and value is not None},
        sessions=(points,),
        # The summary is logged at the end alone, of an early stop, too; any other was killed, or trains.
        state=ExternalState.FINISHED if step >= last or has_summary else ExternalState.RUNNING,
        not_numbers=not_numbers,
    )
