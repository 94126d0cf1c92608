"""Exact bytes of an optimizer's state: counted over the tensors that it really keeps, on any device, `meta` included.

Every storage is counted once, however many tensors look into it, and wrapper tensors (quantised, distributed) are
counted by the plain tensors inside them: of a distributed one what is here. Step counters are state like any other and
are named apart.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from .plan.blocks import Block, BlockPlan
from .plan.modules import plain_name
from .plan.placement import plan_blocks
from .plan.sharding import is_distributed

SEVERAL = "several"
"""The owner of a fused parameter's state that cannot be divided, in place of a block kind."""


@dataclass(frozen=True, kw_only=True)
class StateBytes:
    """The bytes of an optimizer's state."""

    total_bytes: int
    """Everything, step counters included."""
    counter_bytes: int
    """Step counters: 4 bytes per parameter in torch's own optimizers and in AdaPM."""
    by_state: Mapping[str, int]
    """State name (`exp_avg_sq`, …) → bytes."""
    by_block: Mapping[str, int]
    """Block kind (`embedding`, `query`, …) → bytes, counters excepted; empty if no block is known."""


@runtime_checkable
class HasPlan(Protocol):
    """An optimizer that keeps to a block plan."""

    plan: BlockPlan


@runtime_checkable
class _AllocatesState(Protocol):
    """An optimizer that knows its state before the first gradient."""

    def allocate_state(self) -> None:
        """Allocate all state now."""


def state_bytes(optimizer: torch.optim.Optimizer, model: nn.Module | None = None) -> StateBytes:
    """Return the bytes of state that the optimizer keeps now; none before its first step (`allocated_state_bytes`).

    Args:
        optimizer: Any.
        model: The trained model, by which the state of an optimizer without a plan is divided by blocks. State with the
            shape of a fused parameter is divided among its blocks, any other is `SEVERAL`.
    """
    return _count(optimizer, ((parameter, parameter) for parameter in optimizer.state), model)


def allocated_state_bytes(
    optimizer: torch.optim.Optimizer, model: nn.Module | None = None, *, by_shape: bool = False
) -> StateBytes:
    """Count the state of a fresh optimizer as if every parameter had had a gradient.

    Our own optimizers allocate their state; any other takes a step with zero gradients, which is meant for `meta`
    parameters: on real ones it would apply weight decay.

    Args:
        optimizer: Fresh from `optim.build(...)`.
        model: As for `state_bytes`.
        by_shape: Let only two parameters of each group, shape and type take that step, and count for the others what
            the second keeps. So it is with every optimizer of the catalog, and quick for a model of many layers.

    Raises:
        ValueError: the optimizer cannot allocate its state without a step, and a parameter is not on `meta`.
    """
    if isinstance(optimizer, _AllocatesState):
        optimizer.allocate_state()
        return state_bytes(optimizer, model)
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for parameter in parameters:
        if not parameter.is_meta:
            raise ValueError(
                f"{type(optimizer).__name__} has a parameter on {parameter.device}; build it on a model made "
                f'under `torch.device("meta")`'
            )
    examples = _examples(optimizer) if by_shape else {}
    stepping = [parameter for parameter in parameters if examples.get(parameter, parameter) is parameter]
    for parameter in stepping:
        parameter.grad = torch.zeros_like(parameter)
    try:
        optimizer.step()
    finally:
        for parameter in stepping:
            parameter.grad = None
    return _count(optimizer, examples.items(), model) if by_shape else state_bytes(optimizer, model)


def _examples(optimizer: torch.optim.Optimizer) -> dict[Tensor, Tensor]:
    """Return parameter → representative: the second one of equal group, shape and type stands for all later ones."""
    examples: dict[Tensor, Tensor] = {}
    alike: dict[object, list[Tensor]] = {}
    for index, group in enumerate(optimizer.param_groups):
        for parameter in group["params"]:
            peers = alike.setdefault((index, parameter.shape, parameter.stride(), parameter.dtype), [])
            peers.append(parameter)
            examples[parameter] = peers[:2][-1]
    return examples


def _count(
    optimizer: torch.optim.Optimizer, counted: Iterable[tuple[Tensor, Tensor]], model: nn.Module | None
) -> StateBytes:
    """Count the state of each parameter of `optimizer`, which is that of `model`."""
    kinds = _Kinds(optimizer, model)
    by_state: dict[str, int] = {}
    by_block: dict[str, int] = {}
    sizes: dict[Tensor, dict[str, int]] = {}
    counted = list(counted)
    unseen_bytes = _unseen_bytes(
        tensor for _, example in counted for tensor in _tensors(optimizer.state.get(example, {}))
    )
    locations: set[tuple[int, int, int]] = set()
    for parameter, example in counted:
        state = optimizer.state.get(example, {})
        if example not in sizes:
            sizes[example] = {
                key: sum(_new_bytes(tensor, locations, unseen_bytes) for tensor in _tensors(value))
                for key, value in state.items()
            }
        for key, value in state.items():
            held = sizes[example][key]
            by_state[_state_name(key)] = by_state.get(_state_name(key), 0) + held
            for kind, share in kinds.shares(parameter, key, value, held).items():
                by_block[kind] = by_block.get(kind, 0) + share
    return StateBytes(
        total_bytes=sum(by_state.values()),
        counter_bytes=by_state.get("step", 0),
        by_state=by_state,
        by_block=by_block,
    )


def state_tensors(optimizer: torch.optim.Optimizer) -> Iterator[Tensor]:
    """Yield every plain tensor that the optimizer keeps; several may look into one storage."""
    for state in optimizer.state.values():
        yield from _tensors(state)


class _Kinds:
    """The owners of a state tensor's bytes."""

    def __init__(self, optimizer: torch.optim.Optimizer, model: nn.Module | None) -> None:
        self._names = _names(optimizer)
        self._exact: dict[tuple[str, str], str] = {}
        self._blocks: dict[int, tuple[Block, ...]] = {}
        if isinstance(optimizer, HasPlan):
            self._blocks = {key: optimizer.plan.parameter_blocks.get(name, ()) for key, name in self._names.items()}
            self._exact = {
                (block.parameter, block.key(state_name)): str(block.kind)
                for block in optimizer.plan
                for state_name in block.state_shapes
            }
        elif model is not None:
            plan = plan_blocks(model, unknown="full").parameter_blocks
            self._blocks = {id(value): plan.get(plain_name(name), ()) for name, value in model.named_parameters()}

    def shares(self, parameter: Tensor, key: str, value: object, held: int) -> dict[str, int]:
        """Return block kind → bytes of that state; empty for counters, and if no block is known."""
        exact = self._exact.get((self._names.get(id(parameter), ""), key))
        if exact is not None:
            return {exact: held}
        blocks = self._blocks.get(id(parameter), ())
        kinds = list(dict.fromkeys(str(block.kind) for block in blocks))
        if not blocks or key == "step":
            return {}
        if len(kinds) == 1:
            return {kinds[0]: held}
        if not isinstance(value, Tensor) or value.shape != parameter.shape:
            return {SEVERAL: held}
        shares = dict.fromkeys(kinds, 0)
        for block in blocks:
            shares[str(block.kind)] += held * prod(block.shape) // parameter.numel()
        return shares


def _tensors(value: object) -> Iterator[Tensor]:
    """Yield every plain tensor inside a state value."""
    if isinstance(value, Tensor):
        yield from _plain_tensors(value)
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _tensors(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _tensors(inner)


def _plain_tensors(tensor: Tensor) -> Iterator[Tensor]:
    if is_distributed(tensor):
        yield from _plain_tensors(tensor.to_local())
        return
    if not is_traceable_wrapper_subclass(tensor):
        yield tensor
        return
    inner_names, _ = tensor.__tensor_flatten__()
    for name in inner_names:
        yield from _plain_tensors(getattr(tensor, name))


def _storage_range(tensor: Tensor) -> tuple[int, int, int]:
    """Return the tensor's storage, its offset there, and its bytes."""
    # The storage's own identity: its data pointer is 0 on `meta`.
    return tensor.untyped_storage()._cdata, int(tensor.storage_offset()) * tensor.itemsize, tensor.nbytes


def _unseen_bytes(tensors: Iterable[Tensor]) -> dict[int, int]:
    """Return storage → bytes that no tensor covers, which are counted with the first tensor."""
    unseen_bytes: dict[int, int] = {}
    locations: set[tuple[int, int, int]] = set()
    for tensor in tensors:
        if (location := _storage_range(tensor)) not in locations:
            locations.add(location)
            unseen_bytes[location[0]] = unseen_bytes.get(location[0], tensor.untyped_storage().nbytes()) - tensor.nbytes
    return unseen_bytes


def _new_bytes(tensor: Tensor, locations: set[tuple[int, int, int]], unseen_bytes: dict[int, int]) -> int:
    """Return the bytes of the tensor; 0 if it was counted before."""
    location = _storage_range(tensor)
    if location in locations:
        return 0
    locations.add(location)
    return tensor.nbytes + unseen_bytes.pop(location[0], 0)


def _state_name(key: str) -> str:
    """Return the name to count it under: `exp_avg_sq` for `query.exp_avg_sq` of a fused parameter."""
    return key.rpartition(".")[2]


def _names(optimizer: torch.optim.Optimizer) -> dict[int, str]:
    return {
        id(parameter): name
        for group in optimizer.param_groups
        for name, parameter in zip(group.get("param_names", ()), group["params"], strict=False)
    }
