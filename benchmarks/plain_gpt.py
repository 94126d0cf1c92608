"""A GPT-2 in plain torch, as small training scripts write it: fused QKV, SDPA, tied head, no library around it.

What the worker's Hugging Face model is compared with; its sizes come from the same preset.
"""

import torch.nn.functional as F
from torch import Tensor, nn

from worker.catalog.presets import ModelPreset


class Layer(nn.Module):
    """Attention and MLP, each after a norm and added to its input."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_attention, self.norm_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """x: (sequences, length, width), and so is the answer."""
        sequences, length, width = x.shape
        by_head = (sequences, length, self.heads, width // self.heads)
        q, k, v = (part.view(by_head).transpose(1, 2) for part in self.qkv(self.norm_attention(x)).chunk(3, dim=-1))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(sequences, length, width))
        answer: Tensor = x + self.down(F.gelu(self.up(self.norm_mlp(x)), approximate="tanh"))
        return answer


class PlainGPT(nn.Module):
    """Tokens to logits."""

    def __init__(self, preset: ModelPreset) -> None:
        super().__init__()
        width = preset.hidden_size
        self.tokens, self.positions = (
            nn.Embedding(preset.vocabulary_size, width),
            nn.Embedding(preset.max_positions, width),
        )
        self.layers = nn.ModuleList(Layer(width, preset.heads) for _ in range(preset.layers))
        self.norm = nn.LayerNorm(width)
        for parameter in self.parameters():
            if parameter.ndim == 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        """tokens: (sequences, length); logits: (sequences, length, vocabulary)."""
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return F.linear(self.norm(x), self.tokens.weight)
