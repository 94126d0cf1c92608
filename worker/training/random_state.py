"""Every random state of the process, set from a seed and carried through checkpoints.

A run owns its process: it seeds the global generators and does not restore them. Batches and initial weights do not
depend on them (they are functions of the seed and step alone), but an optimizer or a model may. All ranks of a run
have the same states, so that what an optimizer draws is the same in each; a checkpoint holds those of the first.
"""

import random
from typing import Any

import numpy as np
import torch


def seed_everything(seed: int) -> None:
    """Seed Python's, NumPy's and torch's global generators, on every device."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def random_state() -> dict[str, Any]:
    """All global random states as tensors and plain values."""
    numpy_state: Any = np.random.get_state(legacy=False)
    return {
        "python": random.getstate(),
        "numpy_key": torch.from_numpy(numpy_state["state"]["key"].astype(np.int64)),
        "numpy_position": numpy_state["state"]["pos"],
        "numpy_gauss": (numpy_state["has_gauss"], numpy_state["gauss"]),
        "torch_cpu": torch.get_rng_state(),
        "torch_cuda": _cuda_states(),
    }


def _cuda_states() -> list[torch.Tensor]:
    """The generator of the run's GPU; none in a process that has not touched one, and must not for this."""
    initialized: bool = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]  # torch publishes no types for it
    return [torch.cuda.get_rng_state()] if initialized else []


def load_random_state(state: dict[str, Any]) -> None:
    """Set what `random_state()` gave."""
    random.setstate(state["python"])
    key = state["numpy_key"].numpy().astype(np.uint32)
    np.random.set_state(("MT19937", key, state["numpy_position"], *state["numpy_gauss"]))
    torch.set_rng_state(state["torch_cpu"])
    if state["torch_cuda"]:
        torch.cuda.set_rng_state(state["torch_cuda"][0])
