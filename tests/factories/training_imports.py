"""Importing this imports what trainings need, parts of torch that an optimizer loads and transformers among it."""

import torch._dynamo
import torch.distributed.fsdp  # noqa: F401

import worker.rank_attempt  # noqa: F401
from worker.models import outline_model

for name in ("gpt2-tiny", "llama-tiny"):
    outline_model(name)
