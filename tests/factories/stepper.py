"""A stepper on a small preset and the made dataset, as `worker/run.py` builds it, on any device."""

from pathlib import Path
from typing import Any

import torch

from optim.builder import build
from tests.factories.specification import made_spec
from worker.data.preparation import ensure_dataset
from worker.models import build_model, prepare
from worker.spec.run import Execution, Precision, RunSpec
from worker.tasks.next_token import Pretraining
from worker.training.step import Stepper


def executed(spec: RunSpec, precision: Precision = "fp32", **fields: Any) -> RunSpec:
    """The spec with that execution."""
    update = {"precision": precision, "execution": Execution.model_validate(fields)}
    return spec.model_copy(update={"workload": spec.workload.model_copy(update=update)})


def made_stepper(
    dataset_folder: Path, spec: RunSpec | None = None, micro_batch_sequences: int = 4, device: str = "cpu"
) -> Stepper:
    """Return a stepper of `made_spec` by default: batches of 4 × 32 tokens."""
    spec = spec or made_spec()
    torch_device = torch.device(device, 0) if device == "cuda" else torch.device(device)
    model = build_model(spec.workload.model, spec.seed)
    torch.nn.Module.to(model, torch_device)
    prepare(model, spec.workload.execution)
    task = Pretraining(model, ensure_dataset("python-stdlib", "byte", dataset_folder), spec)
    optimizer = build(spec.optimizer.name, model, lr=spec.optimizer.lr, options=spec.optimizer.options)
    return Stepper(task, optimizer, spec.workload, torch_device, micro_batch_sequences)
