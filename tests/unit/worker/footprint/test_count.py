"""Memory before training: the real optimizers' bytes, and a step counted on tensors without storage, which equals the
measurement of the worker's meter."""

from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from typing import cast

import pytest
import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor
from torch.testing._internal.distributed.fake_pg import FakeStore

from benchmarks.counted_memory import WAYS, Way, counted_bytes, measured_bytes
from optim import catalog
from optim.adapm import devices
from optim.builder import build
from optim.catalog import CATALOG, OptimizerEntry
from optim.errors import OptionError, UnknownOptimizerError
from optim.state import allocated_state_bytes
from tests.architecture.tree import REPOSITORY
from tests.factories.fork_server import fork_server
from worker.distributed.sharding import shard_model
from worker.footprint.count import footprint
from worker.footprint.passes import StepCounter
from worker.models import build_model, outline_model
from worker.records.footprint import Footprint, MemoryLine, OptimizerFootprint, PassMemory

OWN = ("adamw", "adapm", "adapm-mini")
GPT2_1_5B = 1_557_611_200


def kept(memory: Footprint) -> list[int]:
    """State of each optimizer; all of them can be counted."""
    return [row.state_bytes for row in memory.optimizers if row.state_bytes is not None]


@pytest.fixture(scope="module")
def gpt2():
    return footprint("gpt2-1.5b", OWN)


def test_it_counts_parameters_gradients_and_each_optimizers_state(gpt2):
    assert (gpt2.parameters, gpt2.parameter_bytes, gpt2.gradient_bytes) == (GPT2_1_5B, 4 * GPT2_1_5B, 4 * GPT2_1_5B)
    assert [row.optimizer for row in gpt2.optimizers] == list(OWN)
    adamw = gpt2.optimizers[0]
    assert adamw.state_bytes == 8 * GPT2_1_5B + adamw.counter_bytes == gpt2.baseline_bytes


@pytest.mark.parametrize("name", OWN)
def test_kinds_of_block_and_counters_add_up_to_the_state(gpt2, name: str):
    row = next(row for row in gpt2.optimizers if row.optimizer == name)
    assert sum(row.state_by_block.values()) + row.counter_bytes == row.state_bytes


def documented() -> tuple[list[str], list[list[str]]]:
    """Return the optimizers, and for each model its name and their gigabytes, as docs/adapm.md has them."""
    section = (REPOSITORY / "docs" / "adapm.md").read_text().partition("## What it saves")[2]
    head, _, *rows = [line.strip("| ").split(" | ") for line in section.split("\n\n")[2].splitlines()]
    return head[1:], rows


@pytest.mark.parametrize("row", documented()[1], ids=lambda row: row[0])
def test_the_documents_say_what_is_kept(row: list[str]):
    for title, figure in zip(documented()[0], row[1:], strict=True):
        name, _, state = title.lower().partition(", ")
        options = {"state_dtype": state.replace("8-bit", "int8")} if state else {}
        (held,) = kept(footprint(row[0].strip("`"), [name], options))
        assert f"{held / 1e9:.{len(figure.partition('.')[2])}f}" == figure, title


def test_savings_are_against_adamw_even_where_it_is_not_asked_for():
    assert footprint("gpt2-tiny", ["adapm"]).baseline_bytes == 6_871_248


def test_an_option_is_given_to_those_that_have_it():
    memory = footprint("gpt2-tiny", OWN, {"rank_ratio": 0.5})
    assert [row.options for row in memory.optimizers] == [{}, {"rank_ratio": 0.5}, {"rank_ratio": 0.5}]
    assert kept(memory)[1] > kept(footprint("gpt2-tiny", ["adapm"]))[0]


def test_an_optimizer_that_cannot_run_on_meta_is_said_to_be_so(monkeypatch):
    strange = OptimizerEntry(
        name="strange",
        title="Strange",
        factory="tests.fakes.unmeasurable:normalised_sgd",
        learning_rate=0.1,
        options=(),
        summary="reads its gradients",
        paper="none",
        licence="none",
    )
    monkeypatch.setattr("optim.catalog.lookup.CATALOG", (*CATALOG, strange))
    (row,) = footprint("gpt2-tiny", ["strange"]).optimizers
    assert (row.optimizer, row.state_bytes, row.state_by_block) == ("strange", None, {})
    assert row.unknown_because is not None
    assert row.unknown_because.startswith("RuntimeError: ")


def test_without_names_every_optimizer_of_the_catalog_has_its_line():
    rows = footprint("gpt2-tiny").optimizers
    assert [row.optimizer for row in rows] == list(catalog.names())
    assert all((row.state_bytes is None) == (row.unknown_because is not None) for row in rows)


def test_what_does_not_exist_is_refused():
    with pytest.raises(KeyError, match="unknown model 'gpt5'"):
        footprint("gpt5")
    with pytest.raises(UnknownOptimizerError, match="unknown optimizer 'adam'"):
        footprint("gpt2-tiny", ["adam"])
    with pytest.raises(OptionError, match="rank_ratio=3"):
        footprint("gpt2-tiny", ["adapm"], {"rank_ratio": 3})


def test_of_several_ranks_it_counts_the_one_with_the_most_as_real_shards_have_it():
    """Three ranks divide no dimension of it evenly; real tensors, in groups that exchange nothing."""
    memory = footprint("gpt2-tiny", ("adamw", "adapm", "muon"), ranks=3)
    # Each in a process of its own, as real ranks are: FSDP2 keeps the first mesh of a process, and with it its rank.
    with ProcessPoolExecutor(3, mp_context=fork_server(), max_tasks_per_child=1) as pool:
        held = list(pool.map(rank_bytes, range(3), repeat(3)))
    assert sum(parameters for parameters, _ in held) == 4 * memory.parameters
    assert len(set(held)) > 1
    assert max(held) == (memory.parameter_bytes, memory.optimizers[1].state_bytes)
    assert memory.gradient_bytes == memory.parameter_bytes
    adamw, _, muon = memory.optimizers
    assert adamw.state_bytes == 2 * memory.parameter_bytes + adamw.counter_bytes
    assert muon.state_bytes is None and (muon.unknown_because or "").startswith("muon ")


def rank_bytes(rank: int, ranks: int) -> tuple[int, int]:
    """(of parameters, of AdaPM's state) in that process."""
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=ranks)
    try:
        model = build_model("gpt2-tiny", seed=0)
        shard_model(model, torch.device("cpu"), ranks)
        state = allocated_state_bytes(build("adapm", model, lr=1e-3)).total_bytes
        local = [cast(DTensor, parameter).to_local() for parameter in model.parameters()]
        return sum(part.numel() * part.element_size() for part in local), state
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize("model", ["gpt2-tiny", "mixtral-tiny"])
def test_two_of_each_shape_tell_the_state_of_all(model: str):
    """Of every optimizer in the catalog, in all that is counted; Mixtral's attention and norms are Llama's."""
    shape = outline_model(model)
    for entry in CATALOG:
        whole, by_shape = (
            allocated_state_bytes(build(entry.name, shape, lr=0.1), shape, by_shape=flag) for flag in (False, True)
        )
        assert by_shape == whole, entry.name


MOST_ERROR = 0.05
BACKWARD, CHECKPOINTED, STEP = WAYS


@pytest.mark.parametrize(
    ("model", "way", "optimizers"),
    [
        ("gpt2-nano", BACKWARD, ("adapm",)),
        ("llama-tiny", CHECKPOINTED, ("adamw",)),
        ("gpt2-nano", STEP, ("adamw", "adapm")),
    ],
)
def test_the_counted_peak_is_the_measured_one(model: str, way: Way, optimizers: tuple[str, ...]):
    """In the backward pass an optimizer is its state, however it is kept; in the step, what it makes besides."""
    memory = footprint(model, optimizers, precision=way.precision, sequence_length_tokens=way.length)
    for optimizer, counted in counted_bytes(memory, way).items():
        measured, phase = measured_bytes(model, optimizer, way)
        assert counted == pytest.approx(measured, rel=MOST_ERROR), (optimizer, phase)


def test_few_layers_tell_the_passes_of_all(monkeypatch: pytest.MonkeyPatch):
    """`gpt2-mini` has six."""
    whole = StepCounter("gpt2-mini").passes("fp32", 64)
    monkeypatch.setattr("worker.footprint.passes._WHOLE_LAYERS", 3)
    assert StepCounter("gpt2-mini").passes("fp32", 64) == whole


def test_nothing_without_storage_stays_in_the_process():
    footprint("gpt2-nano", ["adapm"], precision="fp32", sequence_length_tokens=8)
    assert not hasattr(devices.constant(0.123, torch.float32, torch.device("cpu")), "fake_mode")


def one(optimizer: str, state: int, step: int | None) -> OptimizerFootprint:
    return OptimizerFootprint(optimizer=optimizer, title=optimizer, options={}, state_bytes=state, transient_bytes=step)


GIB = 2**30


def test_the_largest_micro_batch_is_the_last_that_fits():
    lines = (
        MemoryLine(fixed_bytes=3 * GIB, bytes_per_sequence=GIB // 4),
        MemoryLine(fixed_bytes=GIB, bytes_per_sequence=GIB),
    )
    counted = Footprint(
        model="gpt2-tiny",
        parameters=GIB // 4,
        parameter_bytes=GIB,
        gradient_bytes=GIB,
        optimizers=(one("small", GIB, 0), one("slow", GIB, 9 * GIB), one("large", 7 * GIB, 0), one("unknown", 0, None)),
        baseline_bytes=None,
        passes=(PassMemory(checkpointing=False, lines=lines),),
    )
    fits = {fit.optimizer: fit for fit in counted.fit(10.0, 4).fits}
    assert {name: (fit.peak_bytes / GIB, fit.most_sequences, fit.limit) for name, fit in fits.items()} == {
        "small": (7, 7, "activations"),
        "slow": (12, 0, "step"),
        "large": (13, 0, "state"),
    }
    assert fits["small"].activation_bytes == 4 * GIB
    (small,) = (fit for fit in counted.fit(9.999, 4).fits if fit.optimizer == "small")
    assert small.most_sequences == 6
