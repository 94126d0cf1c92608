"""Sharded parameters: who goes by shapes refuses them, since nothing here works on parts of a matrix.

    FSDP1                 every parameter is a part of one vector, of its own (`use_orig_params=True`) or not
    DeepSpeed ZeRO-3      a parameter is empty, its part elsewhere
    FSDP2, tensor parallelism     a parameter is a `DTensor`: its shape is the whole's, its numbers are a part's

The first two hide shapes, by which this project also tells matrices, which decay, from vectors: no optimizer of the
catalog can do without. A `DTensor` is right for every optimizer that moves each weight by itself.
"""

import sys
from collections.abc import Iterable

from torch import Tensor

from ..errors import ShardedParametersError
from .modules import plain_name


def refuse_sharded(named: Iterable[tuple[str, Tensor]], optimizer: str, *, elementwise: bool = False) -> None:
    """Raise `ShardedParametersError` where that optimizer cannot train one of these parameters.

    Args:
        named: Names and parameters.
        optimizer: What it is called.
        elementwise: Whether each weight moves by its own gradient alone: then a `DTensor` is as good as a tensor.
    """
    trainable = {_SPLIT} if elementwise else set()
    found = [(name, value, how) for name, value in named if (how := _how(value)) and how not in trainable]
    if not found:
        return
    name, value, how = found[0]
    others = f" and {len(found) - 1} more" if len(found) > 1 else ""
    raise ShardedParametersError(
        f"{optimizer} goes by the shapes of whole parameters, and {how} {plain_name(name)} {tuple(value.shape)}{others}"
        f"; keep them whole by DistributedDataParallel, or take fully_shard (FSDP2) and an optimizer that moves each "
        f"weight by itself, such as adamw"
    )


_FLAT = "FSDP has flattened"
_PARTED = "DeepSpeed ZeRO-3 has taken apart"
_SPLIT = "FSDP2 or tensor parallelism has split"


def _how(parameter: Tensor) -> str | None:
    """How the parameter is sharded; None where it is whole."""
    if getattr(parameter, "_fsdp_flattened", False):  # torch.distributed.fsdp's own mark
        return _FLAT
    if hasattr(parameter, "ds_id"):  # as DeepSpeed itself tells its own
        return _PARTED
    distributed = sys.modules.get("torch.distributed.tensor")  # nobody has made one where it was never imported
    return _SPLIT if distributed is not None and isinstance(parameter, distributed.DTensor) else None
