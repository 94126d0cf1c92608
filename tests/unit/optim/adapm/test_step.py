"""Batches: like blocks together, bounded, and the same result as one block at a time."""

import copy

import pytest
import torch
from torch import Tensor, nn

from benchmarks.transient_memory import peak_transient_bytes
from optim.adapm import AdaPM, AdaPMMini
from optim.adapm.step import Member, largest_block, likeness, split_into_batches
from optim.plan.blocks import Block, BlockKind, FirstMoment
from optim.plan.placement import plan_blocks
from worker.checks.tiny_models import tiny_gpt2, train

pytestmark = pytest.mark.usefixtures("branch")

CLASSES = pytest.mark.parametrize("cls", [AdaPM, AdaPMMini])


def members(*sizes: int) -> list[Member]:
    block = next(block for block in plan_blocks(tiny_gpt2()) if block.kind is BlockKind.VECTOR)
    return [Member(block, torch.zeros(size), torch.zeros(size), {}) for size in sizes]


def cut(*sizes: int, largest: int) -> list[list[int]]:
    return [
        [member.weight.numel() for member in batch] for batch in split_into_batches(members(*sizes), largest=largest)
    ]


def chunks_of(elements: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("optim.adapm.devices._CPU_CHUNK_ELEMENTS", elements)
    monkeypatch.setattr("optim.adapm.devices._ACCELERATOR_CHUNK_ELEMENTS", elements)


def test_a_batch_is_no_larger_than_the_largest_block_unless_it_is_one_block():
    assert cut(3, 3, 3, 3, largest=6) == [[3, 3], [3, 3]]
    assert cut(3, 9, 1, 1, largest=6) == [[3], [9], [1, 1]]
    assert cut(largest=6) == []


def test_a_batch_is_no_larger_than_a_chunk(monkeypatch):
    chunks_of(4, monkeypatch)
    assert cut(2, 2, 2, largest=100) == [[2, 2], [2]]


def test_low_rank_blocks_share_a_batch_only_with_blocks_of_their_shape():
    plan = plan_blocks(tiny_gpt2())

    def same(blocks: list[Block]) -> int:
        return len({likeness(block) for block in blocks})

    low_rank = [block for block in plan if block.first_moment is FirstMoment.LOW_RANK]
    assert same([block for block in low_rank if block.kind in (BlockKind.QUERY, BlockKind.KEY)]) == 1
    assert same(low_rank) == len({block.shape for block in low_rank}) == 3
    assert same([block for block in plan if block.kind is BlockKind.VECTOR]) == 1


@CLASSES
@pytest.mark.parametrize("solver", ["subspace", "scaled_gd", "gd", "svd"])
def test_batches_move_the_weights_as_single_blocks_do(monkeypatch, cls, solver):
    together, apart = tiny_gpt2(dtype=torch.float64), tiny_gpt2(dtype=torch.float64)
    optimizer = cls.for_model(together, 1e-3, solver=solver, refresh_interval=3)
    train(together, optimizer, range(7))
    chunks_of(1, monkeypatch)
    train(apart, cls.for_model(apart, 1e-3, solver=solver, refresh_interval=3), range(7))
    for one, other in zip(together.parameters(), apart.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-9)


@CLASSES
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_one_block_that_goes_wrong_leaves_the_others_of_its_batch_alone(cls, bad):
    model = tiny_gpt2()
    optimizer = cls.for_model(model, 1e-3)
    train(model, optimizer, range(2))
    healthy = copy.deepcopy((model, optimizer))
    for value, twin in zip(model.parameters(), healthy[0].parameters(), strict=True):
        value.grad = 1e-3 * torch.randn_like(value)
        twin.grad = value.grad.clone()
    first, second, third = (
        getattr(model.get_submodule(f"transformer.h.{layer}.mlp"), name).weight.grad
        for layer, name in ((0, "c_fc"), (1, "c_fc"), (1, "c_proj"))
    )
    first.fill_(bad)
    second[:, 5:] = 0.0
    third.zero_()
    optimizer.step()
    healthy[1].step()
    touched = {
        "transformer.h.0.mlp.c_fc.weight",
        "transformer.h.1.mlp.c_fc.weight",
        "transformer.h.1.mlp.c_proj.weight",
    }
    for (name, value), expected in zip(model.named_parameters(), healthy[0].parameters(), strict=True):
        if name not in touched:
            torch.testing.assert_close(value, expected)
        elif "h.1" in name:
            assert value.isfinite().all()


class _Uneven(nn.Module):
    """Blocks of very different sizes, many of them small: an embedding, and layers of MLPs."""

    def __init__(self, vocabulary: int, layers: int) -> None:
        super().__init__()
        self.wte = nn.Embedding(vocabulary, 96)
        self.mlp = nn.ModuleList(
            nn.ModuleDict({"up_proj": nn.Linear(96, 384), "down_proj": nn.Linear(384, 96)}) for _ in range(layers)
        )


@CLASSES
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("vocabulary", "layers"), [(8000, 2), (20, 8)])
@pytest.mark.parametrize("solver", ["subspace", "scaled_gd", "gd"])
def test_a_step_takes_no_more_than_three_times_the_largest_block_for_a_while(cls, dtype, vocabulary, layers, solver):
    """In float32, the type of the arithmetic, also where the weights are bfloat16."""
    model = _Uneven(vocabulary, layers).to(dtype)
    optimizer = cls.for_model(model, 1e-3, solver=solver, compile=False)
    for value in model.parameters():
        value.grad = torch.randn_like(value)
    optimizer.step()
    steps: Tensor = optimizer.state[model.wte.weight]["step"]
    peak = peak_transient_bytes(optimizer.step, torch.device("cpu"))
    assert steps == 2
    assert peak <= 3 * 4 * largest_block(optimizer.plan)
