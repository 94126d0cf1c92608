"""Division of fused maps, compared with the models' use of them.

A fused map's outputs are shifted, at one position and in the rows that the plan gives to one head, and what reaches the
output projection is looked at. Attention mixes positions, not channels, so that

    a query     changes its own position alone, and the channels of its head alone
    a key       changes several positions, and all channels of the heads that read it
    a value     neuron by neuron, changes that one channel of the heads that read it
    a gate      neuron by neuron, changes that one channel of its head, at its own position alone
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

from optim.plan import BlockKind, BlockPlan, plan_blocks
from optim.plan.blocks import ADAM_MINI_SECOND_MOMENTS, Block
from tests.plans.architectures import ARCHITECTURES

POSITION, LENGTH = 2, 6
QUERY, KEY, VALUE = BlockKind.QUERY, BlockKind.KEY, BlockKind.VALUE
OBSERVED = {"minimax": "model.layers.0.self_attn.norm"}
"""The layers in which a norm mixes the channels before the output projection does."""


def fused_parameters(plan: BlockPlan) -> list[str]:
    """Parameters of several blocks, a query, key or value among them."""
    return [
        name
        for name, blocks in plan.parameter_blocks.items()
        if len(blocks) > 1 and any(block.kind in (QUERY, KEY, VALUE) for block in blocks)
    ]


@dataclass
class Probe:
    """A model, one of its fused maps, and what the map's outputs become before the output projection."""

    model: nn.Module
    fused: nn.Module
    observed: nn.Module

    def changes(self, rows: list[int]) -> tuple[set[int], set[int]]:
        """The positions and channels that change where these outputs are shifted at one position."""
        positions, channels = self.difference(rows)[0].nonzero().T.tolist() or ([], [])
        return set(positions), set(channels)

    def difference(self, rows: list[int]) -> Tensor:
        """Return the observed change."""
        return (self._seen(rows) - self._seen([])).abs().gt(1e-6)

    def _seen(self, rows: list[int]) -> Tensor:
        first_inputs: list[Tensor] = []

        def shift(_module: nn.Module, _inputs: object, outputs: Tensor) -> Tensor:
            shifted = outputs.clone()
            shifted[:, POSITION, rows] += torch.linspace(1.0, 2.0, len(rows))  # a norm would take a constant out
            return shifted

        handles = [
            self.fused.register_forward_hook(shift),
            self.observed.register_forward_pre_hook(lambda _module, inputs: first_inputs.append(inputs[0].clone())),
        ]
        with torch.no_grad():
            self.model(input_ids=torch.arange(3, 3 + LENGTH).unsqueeze(0))
        for handle in handles:
            handle.remove()
        (first_input,) = first_inputs
        return first_input


def real_model(name: str) -> nn.Module:
    """The architecture with weights large enough for every part to matter."""
    torch.manual_seed(0)
    model = ARCHITECTURES[name]().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(0.0, 0.15)
    return model


def probe_of(name: str, model: nn.Module, plan: BlockPlan, parameter: str) -> Probe:
    attention = parameter.rsplit(".", 2)[0]
    outputs = [
        block.parameter.removesuffix(".weight")
        for block in plan
        if block.kind is BlockKind.ATTENTION_OUTPUT and block.parameter.startswith(attention.removesuffix(".self"))
    ]
    assert len(outputs) == 1
    observed = OBSERVED.get(name, outputs[0])
    return Probe(model, model.get_submodule(parameter.removesuffix(".weight")), model.get_submodule(observed))


def rows_of(blocks: tuple[Block, ...], kind: BlockKind) -> list[int]:
    """The outputs of that kind, in the plan's order."""
    return [row for block in blocks if block.kind is kind and block.part for row in _range(block)]


def _range(block: Block) -> range:
    assert block.part is not None and block.part.axis == block.output_axis
    return range(block.part.start, block.part.start + block.part.length)


def by_heads(rows: list[int], size: int) -> Iterator[tuple[int, list[int]]]:
    assert len(rows) % size == 0
    for head in range(len(rows) // size):
        yield head, rows[head * size : (head + 1) * size]


CASES = [
    *("gpt2", "openai-gpt", "mpt", "phi3", "modernbert", "gpt-neox", "bloom", "falcon-7b", "falcon-rw", "falcon-40b"),
    *("persimmon", "codegen", "bigcode-multi-query", "bigcode-multi-head", "deberta", "minimax", "qwen3-next"),
    *("qwen3.5", "gpt-neox-japanese", "gpt2-cross-attention"),
    *("litgpt", "litgpt-older", "lucidrains", "dbrx"),
]


def test_every_architecture_with_a_fused_map_is_here():
    """But those whose map is torch's own, which is documented."""

    def is_checked(parameter: str) -> bool:
        return not parameter.endswith("in_proj_weight")

    with torch.device("meta"):
        plans = {name: plan_blocks(make()) for name, make in ARCHITECTURES.items()}
    assert {name for name, plan in plans.items() if any(map(is_checked, fused_parameters(plan)))} == {*CASES, "jetmoe"}


def test_the_keys_and_values_of_experts_of_attention_are_the_models_own():
    """JetMoE's queries and outputs belong to experts, who have sorted the tokens where the values are seen."""
    model = real_model("jetmoe")
    plan = plan_blocks(model, second_moments=ADAM_MINI_SECOND_MOMENTS)
    attention = "model.layers.0.self_attention"
    blocks = plan.parameter_blocks[f"{attention}.kv_proj.weight"]
    fused, observed = (model.get_submodule(f"{attention}.{name}") for name in ("kv_proj", "experts.output_linear"))
    probe = Probe(model, fused, observed)
    size = next(block.head_size for block in blocks if block.kind is KEY)

    def channels(rows: list[int]) -> list[int]:
        return probe.difference(rows).any(dim=0).nonzero().flatten().tolist()

    assert size == 8
    for head, rows in by_heads(rows_of(blocks, KEY), size):
        assert channels(rows) == list(range(head * size, (head + 1) * size))
    for neuron, row in enumerate(rows_of(blocks, VALUE)):
        assert channels([row]) == [neuron]


@pytest.mark.parametrize("name", CASES)
def test_the_rows_of_a_head_are_the_models_own(name: str):
    model = real_model(name)
    plan = plan_blocks(model, second_moments=ADAM_MINI_SECOND_MOMENTS)
    parameter = fused_parameters(plan)[0]
    blocks = plan.parameter_blocks[parameter]
    probe = probe_of(name, model, plan, parameter)
    size = next(block.head_size for block in blocks if block.kind is QUERY)
    number = len(rows_of(blocks, QUERY)) // size
    assert number == 4

    def channels(heads: range, neurons: range) -> set[int]:
        return {head * size + neuron for head in heads for neuron in neurons}

    def readers(head: int, kind: BlockKind) -> range:
        shared = number // (len(rows_of(blocks, kind)) // size)
        return range(head * shared, (head + 1) * shared)

    everything: Callable[[range], set[int]] = lambda heads: channels(heads, range(size))  # noqa: E731
    for head, rows in by_heads(rows_of(blocks, QUERY), size):
        assert probe.changes(rows) == ({POSITION}, everything(range(head, head + 1)))
    for head, rows in by_heads(rows_of(blocks, KEY), size):
        positions, changed = probe.changes(rows)
        assert len(positions) > 1
        assert changed == everything(readers(head, KEY))
    for head, rows in by_heads(rows_of(blocks, VALUE), size):
        for neuron, row in enumerate(rows):
            positions, changed = probe.changes([row])
            assert len(positions) > 1
            assert changed == channels(readers(head, VALUE), range(neuron, neuron + 1))
    for head, rows in by_heads(rows_of(blocks, BlockKind.GATE), size):
        for neuron, row in enumerate(rows):
            assert probe.changes([row]) == ({POSITION}, {head * size + neuron})
