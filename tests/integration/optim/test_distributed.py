"""Two processes. Under DDP they exchange gradients, and nothing else, and stay alike to the last bit. Sharded
parameters are refused before anything is trained wrongly.
"""

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from optim import catalog
from optim.adapm import AdaPM, AdaPMMini
from optim.baselines.adam_mini import AdamMini
from optim.baselines.shampoo import Shampoo
from optim.builder import build
from optim.errors import ShardedParametersError
from tests.factories.process_group import exit_codes, started
from tests.integration.optim.test_accelerate import loss_on
from tests.integration.optim.test_sharded import CountedElements, split
from worker.checks.tiny_models import batch, loss_of, tiny_gpt2, train
from worker.distributed.process_group import ProcessGroup

STEPS = 4
LR = 3e-3
CLASSES = (AdaPM, AdaPMMini)


def steps(model: nn.Module, optimizer: AdaPM, rows: slice) -> None:
    """Train on those rows of every batch of eight."""
    for step in range(STEPS):
        tokens = torch.cat([batch(2 * step), batch(2 * step + 1)])[rows]
        optimizer.zero_grad()
        loss_on(model, tokens).backward()
        with CountedElements() as counted:
            optimizer.step()
        assert counted.elements == [], "a step is each process's own"


def tensors(model: nn.Module, optimizer: AdaPM) -> dict[str, Tensor]:
    """All weights and all state, by name."""
    weights = dict(model.state_dict())
    state = optimizer.state_dict()["state"]
    return {
        **weights,
        **{f"{index} {key}": value for index, entries in state.items() for key, value in entries.items()},
    }


def one_rank(group: ProcessGroup, folder: Path) -> None:
    """Train each process on its half of every batch."""
    torch.set_num_threads(1)
    rank = group.rank
    states: list[Any] = []
    for cls in CLASSES:
        model = DistributedDataParallel(tiny_gpt2())
        optimizer = cls.for_model(model, lr=LR, refresh_interval=3)
        steps(model, optimizer, slice(4 * rank, 4 * rank + 4))
        states.append(tensors(model.module, optimizer))
    torch.save(states, folder / f"{rank}.pt")
    torch.save({"fsdp1": fsdp1(), "fsdp2": fsdp2()}, folder / f"sharded-{rank}.pt")


def refusals(model: nn.Module) -> dict[str, str]:
    """Return the refusal of each way to build an optimizer on that model; empty if it is built."""
    ways: dict[str, Callable[[], object]] = {
        **{name: partial(build, name, model, lr=LR) for name in catalog.names()},
        **{f"{cls.__name__}.for_model": partial(cls.for_model, model, LR) for cls in (*CLASSES, AdamMini)},
        "AdaPM": lambda: AdaPM(model.named_parameters(), LR),
        "Shampoo": lambda: Shampoo(model.named_parameters(), LR),
    }
    return {name: refusal(way) for name, way in ways.items()}


def refusal(act: Callable[[], object]) -> str:
    try:
        act()
    except ShardedParametersError as error:
        return str(error)
    return ""


def fsdp1() -> dict[str, Any]:
    """Return the refusals of a model that FSDP1 has flattened, with the model's own parameters and without, and of one
    that it flattens once the optimizer is there.
    """
    from torch.distributed.fsdp import FullyShardedDataParallel

    wrapped = partial(FullyShardedDataParallel, device_id=torch.device("cpu"))
    late = tiny_gpt2()
    optimizers = [AdaPM.for_model(late, LR), Shampoo(late.named_parameters(), LR)]
    loss_of(wrapped(late, use_orig_params=True), 0).backward()
    return {
        "views": refusals(wrapped(tiny_gpt2(), use_orig_params=True)),
        "one vector": refusals(wrapped(tiny_gpt2(), use_orig_params=False)),
        "late": {type(optimizer).__name__: refusal(optimizer.step) for optimizer in optimizers},
    }


def fsdp2() -> dict[str, Any]:
    """Return the refusals of models of `DTensor`s; and the distance of accepted ones from one process."""
    sharded = split(tiny_gpt2())
    swapped = Shampoo(tiny_gpt2().named_parameters(), LR)
    # As Accelerate does, which is given the optimizer before the model is sharded.
    swapped.param_groups[0]["params"] = list(sharded.parameters())
    loss_of(sharded, 0).backward()
    sentence_by_name = refusals(sharded)
    distances = {}
    for name in (name for name in catalog.names() if not sentence_by_name[name]):
        parts, whole = split(tiny_gpt2()), tiny_gpt2()
        for model in (parts, whole):
            train(model, build(name, model, lr=LR), range(3))
        pairs = zip(parts.parameters(), whole.parameters(), strict=True)
        distances[name] = max(float((cast(DTensor, part).full_tensor() - value).abs().max()) for part, value in pairs)
    return {"said": sentence_by_name, "swapped": refusal(swapped.step), "apart": distances}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of two ranks."""
    path: Path = tmp_path_factory.mktemp("ranks")
    assert exit_codes(started(one_rank, path / "group", path)) == [0, 0]
    return path


@pytest.fixture(scope="module")
def ranks(folder: Path) -> tuple[list[dict[str, Tensor]], list[dict[str, Tensor]]]:
    """Weights and state of rank 0 and rank 1, for every class."""
    first, second = (torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(2))
    return first, second


@pytest.fixture(scope="module", params=[0, 1])
def sharded(request: pytest.FixtureRequest, folder: Path) -> dict[str, Any]:
    """Return the results of one rank on sharded models."""
    findings: dict[str, Any] = torch.load(folder / f"sharded-{request.param}.pt", weights_only=True)
    return findings


@pytest.mark.parametrize("index", range(len(CLASSES)))
def test_every_rank_has_the_same_weights_and_factors_bit_for_bit(index, ranks):
    first, second = ranks[0][index], ranks[1][index]
    assert list(first) == list(second)
    assert any("momentum_left" in name for name in first)
    assert all(torch.equal(value, second[name]) for name, value in first.items())


@pytest.mark.parametrize("index", range(len(CLASSES)))
def test_two_ranks_take_the_steps_of_one_process_with_the_whole_batch(index, ranks):
    model = tiny_gpt2()
    optimizer = CLASSES[index].for_model(model, lr=LR, refresh_interval=3)
    steps(model, optimizer, slice(None))
    expected = tensors(model, optimizer)
    for name, weight in model.state_dict().items():
        torch.testing.assert_close(ranks[0][index][name], weight, rtol=0.0, atol=1e-4)
    assert list(ranks[0][index]) == list(expected)


WAY_OUT = "keep them whole by DistributedDataParallel, or take fully_shard (FSDP2) and an optimizer that moves each"


@pytest.mark.parametrize("kind", ["views", "one vector"])
def test_what_fsdp1_has_flattened_is_refused_by_every_optimizer(sharded, kind):
    """Its shapes are gone: every matrix would be a vector, with full moments and without decay."""
    for name, sentence in sharded["fsdp1"][kind].items():
        assert "shapes of whole parameters" in sentence, name
        assert WAY_OUT in sentence
    assert sharded["fsdp1"]["views"]["muon"].startswith("muon goes by")
    # Of the first parameter the first rank has everything, the second nothing.
    assert re.search(r"transformer\.wte\.weight \((2048|0),\) and 27 more", sharded["fsdp1"]["views"]["adapm"])


def test_what_fsdp1_flattens_later_is_refused_at_the_first_step(sharded):
    assert all("FSDP has flattened" in sentence for sentence in sharded["fsdp1"]["late"].values())


def test_split_parameters_are_for_adapm_and_for_optimizers_that_move_each_weight_by_itself(sharded):
    sentence_by_name = sharded["fsdp2"]["said"]
    assert {name for name, sentence in sentence_by_name.items() if not sentence} == {
        "AdaPM",
        *(f"{cls.__name__}.for_model" for cls in (*CLASSES, AdamMini)),
        *(entry.name for entry in catalog.entries() if entry.elementwise or entry.has_plan),
    }
    start = "Shampoo goes by the shapes of whole parameters, and FSDP2 or tensor parallelism has split"
    assert sentence_by_name["Shampoo"].startswith(f"{start} transformer.wte.weight (64, 32) and 27 more")
    assert "Shampoo goes by the shapes" in sharded["fsdp2"]["swapped"]


def test_those_train_split_parameters_as_one_process_trains_whole_ones(sharded):
    elementwise_names = {"adamw", "lion", "signsgd", "schedule-free-adamw", "sgd", "nesterov"}
    distances = sharded["fsdp2"]["apart"]
    assert set(distances) == {*elementwise_names, "adapm", "adapm-mini", "adam-mini"}
    assert max(distances[name] for name in elementwise_names) < 1e-6
    # Key biases have no gradient but rounding, which is as large as eps; `test_sharded.py` looks closer.
    assert max(distances.values()) < 1e-4
