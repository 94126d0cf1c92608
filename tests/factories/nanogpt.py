"""A GPT in nanoGPT's manner: its names, its `nn.Linear`s, its parameter groups without names."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class CausalSelfAttention(nn.Module):
    """Query, key and value in one map."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.c_attn = nn.Linear(width, 3 * width, bias=False)
        self.c_proj = nn.Linear(width, width, bias=False)
        self.n_head = heads

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (
            part.unflatten(-1, (self.n_head, -1)).transpose(1, 2) for part in self.c_attn(x).chunk(3, dim=-1)
        )
        mixed: Tensor = F.scaled_dot_product_attention(query, key, value, is_causal=True).transpose(1, 2).flatten(2)
        output: Tensor = self.c_proj(mixed)
        return output


class MLP(nn.Module):
    """Four times as wide as the model."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.c_fc = nn.Linear(width, 4 * width, bias=False)
        self.c_proj = nn.Linear(4 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.c_proj(F.gelu(self.c_fc(x)))
        return output


class Layer(nn.Module):
    """Attention and MLP, each behind a norm and beside a residual."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.ln_1, self.attn = nn.LayerNorm(width, bias=False), CausalSelfAttention(width, heads)
        self.ln_2, self.mlp = nn.LayerNorm(width, bias=False), MLP(width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))
        output: Tensor = x + self.mlp(self.ln_2(x))
        return output


class NanoGPT(nn.Module):
    """Tied head; `forward` gives logits and loss."""

    def __init__(
        self, vocabulary: int = 64, width: int = 32, heads: int = 2, layers: int = 2, length: int = 32
    ) -> None:
        super().__init__()
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(vocabulary, width),
                "wpe": nn.Embedding(32, width),
                "h": nn.ModuleList([Layer(width, heads) for _ in range(layers)]),
                "ln_f": nn.LayerNorm(width, bias=False),
            }
        )
        self.lm_head = nn.Linear(width, vocabulary, bias=False)
        self.lm_head.weight = self.transformer.get_parameter("wte.weight")
        for parameter in self.parameters():
            if parameter.ndim > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        parts: Any = self.transformer
        x = parts.wte(tokens) + parts.wpe(torch.arange(tokens.shape[1]))
        for layer in parts.h:
            x = layer(x)
        logits = self.lm_head(parts.ln_f(x))
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten())

    def groups(self, weight_decay: float) -> list[dict[str, Any]]:
        """nanoGPT's: matrices decay, vectors do not; parameters without names."""
        trainable = [parameter for parameter in self.parameters() if parameter.requires_grad]
        return [
            {"params": [value for value in trainable if value.ndim >= 2], "weight_decay": weight_decay},
            {"params": [value for value in trainable if value.ndim < 2], "weight_decay": 0.0},
        ]
