"""AdaPM under DDP: two processes that exchange gradients, and nothing else, stay alike to the last bit."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.multiprocessing.spawn import spawn
from torch.nn.parallel import DistributedDataParallel
from torch.utils._python_dispatch import TorchDispatchMode

from optim.adapm import AdaPM, AdaPMMini
from worker.tiny_models import batch, tiny_gpt2

STEPS = 4
LR = 3e-3
CLASSES = (AdaPM, AdaPMMini)


def loss_of(model: nn.Module, tokens: Tensor) -> Tensor:
    logits = model(tokens).logits
    return nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())


def steps(model: nn.Module, optimizer: AdaPM, rows: slice) -> None:
    """Train on those rows of every batch of eight."""
    for step in range(STEPS):
        tokens = torch.cat([batch(2 * step), batch(2 * step + 1)])[rows]
        optimizer.zero_grad()
        loss_of(model, tokens).backward()
        with NoCollectives():
            optimizer.step()


class NoCollectives(TorchDispatchMode):
    """Within, communication between processes is an error."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace == "c10d":
            raise RuntimeError(f"{func} communicates")
        return func(*args, **(kwargs or {}))


def communication_is_seen() -> bool:
    """Whether `NoCollectives` would notice any."""
    try:
        with NoCollectives():
            dist.all_reduce(torch.zeros(1))
    except RuntimeError as error:
        return "communicates" in str(error)
    return False


def tensors(model: nn.Module, optimizer: AdaPM) -> dict[str, Tensor]:
    """All weights and all state, by name."""
    weights = dict(model.state_dict())
    state = optimizer.state_dict()["state"]
    return {**weights, **{f"{index} {key}": value for index, kept in state.items() for key, value in kept.items()}}


def one_rank(rank: int, folder: str) -> None:
    """What each process does: its half of every batch."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    assert communication_is_seen()
    found: list[Any] = []
    for cls in CLASSES:
        model = DistributedDataParallel(tiny_gpt2())
        optimizer = cls.for_model(model, lr=LR, refresh_interval=3)
        steps(model, optimizer, slice(4 * rank, 4 * rank + 4))
        found.append(tensors(model.module, optimizer))
    torch.save(found, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[dict[str, Tensor]], list[dict[str, Tensor]]]:
    """Weights and state of rank 0 and rank 1, for every class."""
    folder: Path = tmp_path_factory.mktemp("ranks")
    spawn(one_rank, (str(folder),), nprocs=2)
    first, second = (torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(2))
    return first, second


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
