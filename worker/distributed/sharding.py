"""A model that its processes share: a part of every parameter each (FSDP2), and its state as one process has it.

    shard_model      every layer, then what is around them: weights are gathered for a layer's turn and let go after it
    whole_state      a state dict of such parts, whole, in rank 0's memory and there alone
    local_state      the part of a whole state that belongs here

So a checkpoint is the same file whatever number of processes wrote it, and as many as like go on from it.
"""

from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor


def shard_model(model: nn.Module, device: torch.device, processes: int) -> None:
    """Leave of every parameter this process's part, on the device; the model is still on the CPU, the same in each.

    A layer at a time, so that a device never holds the whole. Nothing stays gathered after a forward pass: an
    evaluation may be on other weights than the training (`result_weights`).
    """
    mesh = init_device_mesh(device.type, (processes,))
    layers = set(getattr(model, "_no_split_modules", None) or ())  # transformers' names of their classes
    for module in [module for module in model.modules() if type(module).__name__ in layers]:
        fully_shard(module, mesh=mesh, reshard_after_forward=True)
    fully_shard(model, mesh=mesh, reshard_after_forward=True)


def whole_state(state: Any, *, is_kept: bool) -> Any:
    """Return every sharded tensor in nested state as a whole one on the CPU, in the processes that keep it; None in
    others.

    All processes have to call it at once. What is not sharded stays as it is; a tensor that stands twice is one again.
    """
    return _whole(state, is_kept, {})


def _whole(state: Any, is_kept: bool, tensors_by_id: dict[int, Tensor | None]) -> Any:
    if isinstance(state, Mapping):
        return {key: _whole(value, is_kept, tensors_by_id) for key, value in state.items()}
    if isinstance(state, list | tuple):
        return type(state)(_whole(value, is_kept, tensors_by_id) for value in state)
    if not isinstance(state, DTensor):
        return state.detach() if isinstance(state, Tensor) else state
    if id(state) not in tensors_by_id:  # the same in every process: a tied weight is one parameter
        whole = cast("DTensor", state.detach()).full_tensor()
        tensors_by_id[id(state)] = whole.cpu() if is_kept else None
    return tensors_by_id[id(state)]


def local_state(whole: Tensor, like: Tensor) -> Tensor:
    """Return the part of a whole tensor that belongs here, where `like` is sharded; no process asks another."""
    if not isinstance(like, DTensor) or isinstance(whole, DTensor) or whole.shape != like.shape:
        return whole
    return distribute_tensor(whole.to(like.device), like.device_mesh, like.placements, src_data_rank=None)


def local_model_state(model: nn.Module, whole: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return this process's part of a model's whole state dict."""
    own_state = model.state_dict()
    return {name: local_state(value, own_state[name]) if name in own_state else value for name, value in whole.items()}


def local_optimizer_state(optimizer: torch.optim.Optimizer, whole: Mapping[str, Any]) -> dict[str, Any]:
    """Return this process's part of an optimizer's whole state dict: state of a parameter's shape is divided like the
    parameter. AdaPM divides its own state itself, which has other shapes."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    indices = [index for group in whole["param_groups"] for index in group["params"]]
    parameters_by_index = dict(zip(indices, parameters, strict=True))
    state = {
        index: {
            key: local_state(value, parameters_by_index[index]) if isinstance(value, Tensor) else value
            for key, value in parameter_state.items()
        }
        for index, parameter_state in whole["state"].items()
    }
    return {**whole, "state": state}
