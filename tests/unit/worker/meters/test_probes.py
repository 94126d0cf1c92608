"""Probes inside real runs: what they see is right, and nobody else notices them."""

from pathlib import Path
from typing import Any

import pytest
import torch

from optim.adapm import AdaPM
from optim.builder import build
from optim.catalog import entry, names
from tests.factories.reporters import MemoryReporter, StoppingReporter, losses, reported
from tests.factories.specification import made_spec
from worker.errors import RunStoppedError
from worker.meters.probes import Probing, residual, spectrum
from worker.models import build_model
from worker.records.result import Observation
from worker.run import Folders, run
from worker.spec.parts import Probes
from worker.spec.run import RunSpec

ALL = ["gradient-sparsity", "momentum-spectrum", "residual"]


def spec_of(optimizer: str, steps: int = 8, **probes: Any) -> RunSpec:
    spec = made_spec(optimizer=optimizer, steps=steps, lr=entry(optimizer).learning_rate, model="gpt2-nano")
    observed = Probes.model_validate({"every_steps": 4, **probes})
    return spec.model_copy(update={"workload": spec.workload.model_copy(update={"probes": observed})})


@pytest.mark.parametrize("optimizer", ["adapm", "sgd"])
def test_probes_move_no_loss_and_see_every_block_at_every_due_step(
    optimizer: str, folders: Folders, tmp_path: Path
) -> None:
    """In a window of two steps after every fourth; the names are the block plan's."""
    probed, _ = reported(spec_of(optimizer, steps=6, window_steps=2), folders)
    elsewhere = Folders(run_folder=tmp_path / "plain", dataset_folder=folders.dataset_folder)
    spec = made_spec(optimizer=optimizer, steps=6, lr=entry(optimizer).learning_rate, model="gpt2-nano")
    plain, _ = reported(spec, elsewhere)

    assert losses(probed.points) == losses(plain.points)
    assert [(record.step, record.probe) for record in probed.observations] == [(s, p) for s in (4, 5) for p in ALL]
    for record in probed.observations:
        assert "transformer.h.0.attn.c_attn.weight:value" in record.blocks
        assert len(record.blocks) == 2 + 2 * 6
        assert Observation.model_validate_json(record.model_dump_json()) == record
    assert plain.observations == []
    assert all((point.optimizer_seconds or 0.0) > 0.0 for point in probed.points[1:])


@pytest.mark.parametrize("optimizer", ["adapm", "sgd"])
def test_a_resumed_run_observes_the_same_to_the_bit(optimizer: str, folders: Folders, tmp_path: Path) -> None:
    """Also where the momentum is the probes' own."""
    whole, first, second = MemoryReporter(), StoppingReporter(5), MemoryReporter()
    run(spec_of(optimizer), whole, Folders(run_folder=tmp_path / "whole", dataset_folder=folders.dataset_folder))
    with pytest.raises(RunStoppedError):
        run(spec_of(optimizer), first, folders)
    run(spec_of(optimizer), second, folders)
    assert [*first.observations, *second.observations] == whole.observations


def stepped(optimizer: torch.optim.Optimizer, model: torch.nn.Module, step: int) -> None:
    """Take a step on made gradients, which stay for a look."""
    draw = torch.Generator().manual_seed(step)
    for parameter in model.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=draw) * 0.01
    optimizer.step()


def test_the_momentum_is_the_optimizers_where_it_keeps_one_and_else_the_average_of_gradients() -> None:
    """AdamW's exp_avg (no memory of ours after its first step); for SGD the formula, step by step."""
    name = "transformer.h.1.mlp.c_fc.weight"
    for optimizer_name, keeps_momentum in (("adamw", True), ("sgd", False)):
        model = build_model("gpt2-nano", 1)
        optimizer = build(optimizer_name, model, lr=1e-3)
        probing = Probing(model, optimizer, Probes(every_steps=3, kinds=("momentum-spectrum",)))
        parameter, average = model.get_parameter(name), torch.zeros(())
        for step in (1, 2, 3):
            with probing.watch(step):
                stepped(optimizer, model, step)
            assert parameter.grad is not None
            average = 0.9 * average + 0.1 * parameter.grad
        (observation,) = probing.take_observations()
        expected = optimizer.state[parameter]["exp_avg"] if keeps_momentum else average
        assert observation.blocks[name] == pytest.approx(spectrum(expected), rel=1e-4)
        assert (probing.state() == {}) is keeps_momentum


@pytest.mark.parametrize("debias", [False, True])
def test_adapms_residual_is_line_6_of_algorithm_1(debias: bool) -> None:
    """r = L R - ((1 - b1) G + b1 L' R') with the optimizer's own factors before and after the step."""
    model = build_model("gpt2-nano", 1)
    optimizer = build("adapm", model, lr=1e-3, options={"debias_moments": debias})
    assert isinstance(optimizer, AdaPM)
    probing = Probing(model, optimizer, Probes(every_steps=1, kinds=("residual",)))
    parameter = model.get_parameter("transformer.h.0.attn.c_attn.weight")
    block = next(block for block in optimizer.plan if block.name == "transformer.h.0.attn.c_attn.weight:query")
    before = torch.zeros(())
    for step in (1, 2, 3):
        with probing.watch(step):
            stepped(optimizer, model, step)
        state, (observation,) = optimizer.state[parameter], probing.take_observations()
        after = state[block.key("momentum_left")] @ state[block.key("momentum_right")]
        assert parameter.grad is not None
        momentum = 0.1 * block.view(parameter.grad) + 0.9 * before
        assert observation.blocks[block.name] == pytest.approx(residual(after - momentum, momentum), rel=1e-3)
        assert 0.1 < observation.blocks[block.name]["relative_norm"] < 1.0
        before = after


@pytest.mark.parametrize("name", names())
def test_every_optimizer_of_the_catalog_can_be_observed(name: str) -> None:
    """Whatever it keeps, and however it is wrapped; steps that nobody watches leave no trace."""
    model = build_model("gpt2-nano", 1)
    optimizer = build(name, model, lr=entry(name).learning_rate)
    probing = Probing(model, optimizer, Probes(every_steps=2))
    stepped(optimizer, model, 0)
    assert probing.take_observations() == []
    for step in (1, 2):
        with probing.watch(step):
            stepped(optimizer, model, step)
    assert [observation.probe for observation in probing.take_observations()] == ALL
    assert probing.seconds > 0.0


def test_a_step_that_is_wrapped_twice_is_observed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """As by torch itself, where some library has replaced the `step` of an optimizer's class."""
    model = build_model("gpt2-nano", 1)
    optimizer = build("sgd", model, lr=1e-3)
    wrapped_step = torch.optim.Optimizer.profile_hook_step(type(optimizer).step)
    monkeypatch.setattr(type(optimizer), "step", wrapped_step)
    calls: list[str] = []
    optimizer.register_step_post_hook(lambda *_: calls.append("hook"))
    probing = Probing(model, optimizer, Probes(every_steps=1))
    with probing.watch(1):
        stepped(optimizer, model, 1)
    assert len(calls) > 1
    assert [observation.probe for observation in probing.take_observations()] == ALL
