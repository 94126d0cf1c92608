"""Small mixtures of experts, for tests that train one."""

import torch
from torch import nn

from tests.plans.architectures import causal


def mixtral() -> nn.Module:
    """Mixtral with two experts, its head untied."""
    return causal("mixtral", num_local_experts=2, tie_word_embeddings=False)()


class Experts(nn.Module):
    """Mixtral's own: gate and up fused, experts × out × in, or with `turned` experts × in × out."""

    def __init__(self, turned: bool, number: int, *, width: int = 8, inner: int = 6) -> None:
        super().__init__()
        up, down = torch.zeros(number, 2 * inner, width), torch.zeros(number, width, inner)
        self.gate_up_proj = nn.Parameter(up.mT.contiguous() if turned else up)
        self.down_proj = nn.Parameter(down.mT.contiguous() if turned else down)
