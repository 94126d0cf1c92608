"""The outline of a model in parts, in a group of processes that exchanges nothing."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import nn
from torch.testing._internal.distributed.fake_pg import FakeStore  # registers torch's backend `fake`

from worker.distributed.sharding import shard_model
from worker.models import outline_model


@contextmanager
def sharded_outline(model: str, ranks: int) -> Iterator[nn.Module]:
    """Yield the first rank's part of the model's outline."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=ranks)
    try:
        whole = outline_model(model)
        shard_model(whole, torch.device("cpu"), ranks)
        yield whole
    finally:
        dist.destroy_process_group()
