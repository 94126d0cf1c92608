"""The execution of a model changes its cost, not its results."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.factories.reporters import MemoryReporter
from tests.factories.specification import made_spec
from tests.factories.stepper import executed, made_stepper
from worker.errors import DeviceError
from worker.models import build_model, prepare, reset_compiler
from worker.run import Folders, run
from worker.spec.run import Execution


def three_losses(dataset_folder: Path, model: str = "gpt2-tiny", **fields: Any) -> list[float]:
    stepper = made_stepper(dataset_folder, executed(made_spec(model=model), **fields))
    return [stepper.take(step).loss for step in range(3)]


@pytest.mark.parametrize("model", ["gpt2-tiny", "llama-tiny"])
def test_attention_and_checkpointing_move_losses_by_rounding_only(model: str, dataset_folder: Path) -> None:
    """Three steps, so that the gradients are compared too; recomputing on a CPU does not even round."""
    expected = three_losses(dataset_folder, model)

    assert three_losses(dataset_folder, model, activation_checkpointing=True) == expected
    assert three_losses(dataset_folder, model, attention="eager") == pytest.approx(expected, rel=1e-5)


def test_attention_is_the_one_that_was_asked_for() -> None:
    """Whatever the model came with."""
    model = build_model("gpt2-tiny", 0)
    for attention in ("eager", "sdpa"):
        prepare(model, Execution.model_validate({"attention": attention}))
        assert model.config._attn_implementation == attention


def test_a_model_that_cannot_be_compiled_here_says_so_with_the_way_out(
    folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compiler that is not there, say."""

    def missing(graph: torch.fx.GraphModule, _: object) -> object:
        raise FileNotFoundError("g++")

    real = torch.nn.Module.compile
    monkeypatch.setattr(torch.nn.Module, "compile", lambda self: real(self, backend=missing))
    try:
        with pytest.raises(DeviceError, match=r"torch\.compile failed here.*leave workload\.execution\.compile off"):
            run(executed(made_spec(steps=3), compile=True), MemoryReporter(), folders)
    finally:
        reset_compiler()


def test_compile_compiles_the_models_own_call(dataset_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its names in checkpoints stay, and the losses do; without code generation, which would take half a minute."""
    compiled = []

    def eager(graph: torch.fx.GraphModule, _: object) -> object:
        compiled.append(graph)
        return graph.forward

    real = torch.nn.Module.compile
    monkeypatch.setattr(torch.nn.Module, "compile", lambda self: real(self, backend=eager))
    try:
        losses = three_losses(dataset_folder, compile=True)
    finally:
        reset_compiler()

    assert compiled
    assert losses == pytest.approx(three_losses(dataset_folder), rel=1e-5)
