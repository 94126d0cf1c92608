"""Promises of the bench on the GPU of this machine: training, memory, energy, processes, resuming.

`ADAPM_TEST_DEVICE=cpu` puts the CPU in its place, with what it has: `benchmarks/device_kit.py` runs these either way.
"""

import math
import os
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from optim import catalog
from optim.adapm import AdaPM, AdaPMMini
from tests.factories.process_group import exit_codes, started
from tests.factories.reporters import MemoryReporter, StoppingReporter
from tests.factories.specification import made_spec
from tests.factories.stepper import executed, made_stepper
from worker.checks.tiny_models import batch, loss_of, tiny_gpt2, tiny_llama
from worker.distributed.process_group import ProcessGroup
from worker.errors import OutOfMemoryError, RunStoppedError
from worker.records.result import Point, Result, Verdict
from worker.run import Folders, run
from worker.spec.run import Budget, DataSpec, Resources, RunSpec
from worker.training.device import GIB, free_memory

DEVICE = os.environ.get("ADAPM_TEST_DEVICE", "cuda")
ON_GPU = DEVICE == "cuda"
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        ON_GPU and not torch.cuda.is_available(), reason="needs an NVIDIA GPU, or ADAPM_TEST_DEVICE=cpu"
    ),
]
TINY = ("gpt2-tiny", "llama-tiny") if ON_GPU else ("gpt2-nano",)


def spec_of(optimizer: str = "adapm", *, length: int = 32, **fields: Any) -> RunSpec:
    """Six steps on the device."""
    spec = made_spec(optimizer=optimizer, steps=6, model=TINY[0])
    data = DataSpec(sequence_length_tokens=length)
    workload = spec.workload.model_copy(update={"data": data, "budget": Budget(steps=6, batch_sequences=8)})
    placed = {"workload": workload, "resources": Resources(gpus=int(ON_GPU))}
    return executed(spec.model_copy(update=placed), "fp32", **fields)


def losses(points: list[Point]) -> list[tuple[int, float | None, float | None]]:
    return [(point.step, point.train_loss, point.val_loss) for point in points]


@pytest.mark.parametrize("model", TINY)
@pytest.mark.parametrize("name", catalog.names())
def test_every_optimizer_trains_every_family(name: str, model: str, dataset_folder: Path) -> None:
    spec = made_spec(optimizer=name, model=model, steps=4)
    stepper = made_stepper(dataset_folder, spec, device=DEVICE)
    step_losses = [stepper.take(step).loss for step in range(3)]
    assert all(math.isfinite(loss) for loss in step_losses), step_losses
    assert all(bool(value.isfinite().all()) for value in stepper.task.model.parameters())


@pytest.mark.parametrize("cls", [AdaPM, AdaPMMini])
@pytest.mark.parametrize("tiny", [tiny_gpt2, tiny_llama])
def test_a_step_is_that_of_a_cpu(cls: type[AdaPM], tiny: Any) -> None:
    """Of the same gradients; sketches are drawn by each device's own generator, and forgotten within some steps."""
    models = tiny(), tiny().to(DEVICE)
    for step in range(2):
        loss_of(models[0], step).backward()
    for host_weight, device_weight in zip(*(model.parameters() for model in models), strict=True):
        assert host_weight.grad is not None
        device_weight.grad = host_weight.grad.to(DEVICE)
    optimizers = [
        cls.for_model(model, 1e-3, solver="svd", compile=None if k else False) for k, model in enumerate(models)
    ]
    for _ in range(3):
        for optimizer in optimizers:
            optimizer.step()
    for host_weight, device_weight in zip(*(model.parameters() for model in models), strict=True):
        torch.testing.assert_close(device_weight.cpu(), host_weight, rtol=1e-3, atol=1e-5)


def test_parameters_on_another_gpu_than_the_current_one_are_moved_there() -> None:
    device = f"cuda:{torch.cuda.device_count() - 1}" if ON_GPU else "cpu"
    models = tiny_gpt2().to(device), tiny_gpt2().to(device)
    for compile, model in zip((False, None), models, strict=True):
        optimizer = AdaPMMini.for_model(model, 1e-3, compile=compile)
        for value in model.parameters():
            draw = torch.Generator().manual_seed(value.numel())
            value.grad = 1e-3 * torch.randn(value.shape, generator=draw).to(device)
        optimizer.step()
    for plain, other in zip(*(model.parameters() for model in models), strict=True):
        torch.testing.assert_close(other, plain, rtol=1e-4, atol=1e-6)


def test_products_in_tf32_move_weights_by_its_rounding_alone() -> None:
    """Numbers of 11 bits; single weights may move by more, where m is the small rest of large terms. A CPU has no TF32:
    there they change nothing."""
    models = tiny_gpt2().to(DEVICE), tiny_gpt2().to(DEVICE)
    starts = [value.detach().clone() for value in models[0].parameters()]
    for precision, model in zip(("highest", "high"), models, strict=True):
        optimizer = AdaPM.for_model(model, 1e-3, matmul_precision=precision)
        for value in model.parameters():
            draw = torch.Generator().manual_seed(value.numel())
            value.grad = 1e-3 * torch.randn(value.shape, generator=draw).to(DEVICE)
        for _ in range(3):
            optimizer.step()
    for start, exact, narrow in zip(starts, *(model.parameters() for model in models), strict=True):
        missed = (narrow - exact).norm() / (exact - start).norm()
        assert missed <= (2**-8 if ON_GPU else 0.0)


def test_memory_and_energy_are_what_the_driver_says(dataset_folder: Path, tmp_path: Path) -> None:
    """What NVML counts of the process is what torch's allocator reserved, and the context beside it."""
    result = run(spec_of(), MemoryReporter(), Folders(run_folder=tmp_path, dataset_folder=dataset_folder))
    peak = result.peak_memory
    assert peak.host_rss_bytes > 0
    if not ON_GPU:
        assert (peak.allocator_bytes, peak.nvml_process_bytes, result.energy_joules) == (None, None, None)
        return
    assert peak.allocator_bytes is not None
    assert peak.allocator_reserved_bytes is not None
    assert 0 < peak.allocator_bytes <= peak.allocator_reserved_bytes
    if peak.nvml_process_bytes is not None:
        assert peak.allocator_reserved_bytes <= peak.nvml_process_bytes < peak.allocator_reserved_bytes + 2 * GIB
    else:
        assert result.nvml_note, "what cannot be had has a reason"
    assert result.energy_joules is None or 0.0 < result.energy_joules < 1_000 * result.device_seconds


def test_without_memory_half_the_micro_batch_is_asked_for_and_trains(dataset_folder: Path, tmp_path: Path) -> None:
    def folders(name: str) -> Folders:
        return Folders(run_folder=tmp_path / name, dataset_folder=dataset_folder)

    def executed_alone(spec: RunSpec, name: str, **how: Any) -> Result:
        free_memory()  # what the run before left to torch's allocator would count as reserved by this one
        return run(spec, MemoryReporter(), folders(name), **how)

    def peak(result: Result) -> int:
        assert result.memory_breakdown is not None
        return result.peak_memory.allocator_reserved_bytes or result.memory_breakdown.peak_bytes

    model_length = 256
    whole = executed_alone(spec_of(length=model_length, micro_batch_sequences=8), "whole")
    small = executed_alone(spec_of(length=model_length, micro_batch_sequences=1), "small")
    assert peak(small) < peak(whole)
    cap_gib = (peak(whole) + peak(small)) / 2 / GIB
    capped, size = spec_of(length=model_length, memory_cap_gib=cap_gib), 8
    while True:
        try:
            result = executed_alone(capped, str(size), micro_batch_sequences=size, retried_smaller=True)
            break
        except OutOfMemoryError:
            size //= 2
    assert (result.verdict, result.micro_batch_sequences) == (Verdict.CONVERGED, size)
    assert 1 <= size < 8


@pytest.mark.parametrize("optimizer", ["adamw", "adapm", "adapm-mini"])
def test_a_resumed_run_has_the_losses_of_one_that_never_stopped_to_the_bit(
    optimizer: str, dataset_folder: Path, tmp_path: Path
) -> None:
    whole, first, second = MemoryReporter(), StoppingReporter(3), MemoryReporter()
    spec = spec_of(optimizer)
    run(spec, whole, Folders(run_folder=tmp_path / "whole", dataset_folder=dataset_folder))
    halves = Folders(run_folder=tmp_path / "halves", dataset_folder=dataset_folder)
    with pytest.raises(RunStoppedError):
        run(spec, first, halves)
    result = run(spec, second, halves, first.checkpoints[-1])
    assert result.resumed_from_step == 3
    assert losses(first.points + second.points) == losses(whole.points)


def _sum_and_tell(group: ProcessGroup, folder: Path) -> None:
    own_device = torch.device("cuda", group.local_gpu) if ON_GPU else torch.device("cpu")
    total = torch.full((3,), float(group.rank + 1), device=own_device)
    dist.all_reduce(total)
    assert total.tolist() == [group.size * (group.size + 1) / 2] * 3
    assert group.broadcast(7 if group.is_rank_zero else 0) == 7
    assert list(group.all_gather(str(group.rank))) == [str(rank) for rank in range(group.size)]
    (folder / f"said {group.rank}").touch()


@pytest.mark.parametrize("size", [1, 2])
def test_processes_exchange_over_nccl(size: int, tmp_path: Path) -> None:
    """Over gloo where the CPU stands in."""
    if ON_GPU and torch.cuda.device_count() < size:
        pytest.skip(f"one GPU here, and {size} processes have one each")
    backend = "nccl" if ON_GPU else "gloo"
    processes = started(_sum_and_tell, tmp_path / "ranks", tmp_path, size=size, backend=backend)
    assert exit_codes(processes, 90.0) == [0] * size
    assert len(list(tmp_path.glob("said *"))) == size


@pytest.mark.skipif(not ON_GPU, reason="on a CPU that is a minute of a C++ compiler: make compiled-test")
@pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores:UserWarning")  # float32 was asked for
def test_a_compiled_model_trains_as_one_that_is_not(dataset_folder: Path, tmp_path: Path) -> None:
    plain, other = MemoryReporter(), MemoryReporter()
    run(spec_of(), plain, Folders(run_folder=tmp_path / "plain", dataset_folder=dataset_folder))
    run(spec_of(compile=True), other, Folders(run_folder=tmp_path / "compiled", dataset_folder=dataset_folder))
    for loss, two in zip(losses(plain.points), losses(other.points), strict=True):
        assert two == pytest.approx(loss, rel=1e-2)


@pytest.mark.skipif(not ON_GPU, reason="a CPU has no graphs")
@pytest.mark.parametrize(
    ("cls", "options"),
    [
        (AdaPM, {}),
        (AdaPMMini, {"debias_moments": True}),
        (AdaPMMini, {"matmul_precision": "high", "inner_iterations": 2}),
        (AdaPM, {"compile": False}),
    ],
)
def test_a_graph_repeats_steps_as_they_are_outside(cls: type[AdaPM], options: dict[str, Any]) -> None:
    """At a learning rate that a schedule moves, with a refresh outside at every fourth."""
    ordinary, graphed = tiny_gpt2().to(DEVICE), tiny_gpt2().to(DEVICE)
    plain = cls.for_model(ordinary, 1e-3, refresh_interval=4, **options)
    rate = torch.tensor(1e-3, device=DEVICE)
    optimizer = cls.for_model(graphed, rate, refresh_interval=4, capturable=True, **options)
    for value in (*ordinary.parameters(), *graphed.parameters()):
        value.grad = torch.zeros_like(value)
    graph, stream = None, torch.cuda.Stream()
    for step in range(11):
        for model in (ordinary, graphed):
            draw = torch.Generator().manual_seed(step)
            for value in model.parameters():
                assert value.grad is not None
                value.grad.copy_(torch.randn(value.shape, generator=draw))
        rate.fill_(1e-3 / (1 + step))
        plain.param_groups[0]["lr"] = rate.item()
        plain.step()
        if step < 3 or step % 4 == 0:
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                optimizer.step()
            torch.cuda.current_stream().wait_stream(stream)
            continue
        if graph is None:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                optimizer.step()
        graph.replay()
    for weight, other in zip(ordinary.parameters(), graphed.parameters(), strict=True):
        torch.testing.assert_close(other, weight, rtol=0.0, atol=2e-6)
    assert {state["step"].item() for state in optimizer.state.values()} == {11.0}


@pytest.mark.skipif(not ON_GPU, reason="a CPU has no graphs")
def test_a_graph_repeats_a_whole_iteration_and_refreshes_lie_between() -> None:
    """Gradients are the graph's own: their addresses are new when it captures."""
    models = tiny_gpt2().to(DEVICE), tiny_gpt2().to(DEVICE)
    plain, optimizer = (
        AdaPMMini.for_model(model, 1e-3, refresh_interval=5, capturable=bool(k)) for k, model in enumerate(models)
    )
    tokens = batch(0).to(DEVICE)

    def iterate(model: torch.nn.Module, chosen: torch.optim.Optimizer) -> None:
        loss = model(tokens, labels=tokens).loss
        chosen.zero_grad(set_to_none=chosen is plain)
        loss.backward()
        chosen.step()

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for step in range(3):
            tokens.copy_(batch(step))
            iterate(models[1], optimizer)
    torch.cuda.current_stream().wait_stream(stream)
    optimizer.zero_grad(set_to_none=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        iterate(models[1], optimizer)
    for step in range(12):
        tokens.copy_(batch(step))
        iterate(models[0], plain)
        if step > 2:
            if step % 5:
                graph.replay()
            else:
                iterate(models[1], optimizer)
    for weight, other in zip(*(model.parameters() for model in models), strict=True):
        torch.testing.assert_close(other, weight, rtol=0.0, atol=2e-5)
