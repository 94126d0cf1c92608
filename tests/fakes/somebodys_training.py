"""The script of somebody who installs `adapm`: a model in plain torch, data, and a check whether the loss falls."""

from typing import cast

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset


class Block(nn.Module):
    """Attention and MLP, each around a residual path, with names that say what is what."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.attn = nn.MultiheadAttention(width, num_heads=2, batch_first=True)
        self.ln_2 = nn.LayerNorm(width)
        self.up_proj = nn.Linear(width, 4 * width)
        self.down_proj = nn.Linear(4 * width, width)

    def forward(self, hidden: Tensor, mask: Tensor) -> Tensor:
        normed = self.ln_1(hidden)
        attended, _ = self.attn(normed, normed, normed, attn_mask=mask, need_weights=False)
        hidden = hidden + attended
        widened = nn.functional.gelu(self.up_proj(self.ln_2(hidden)))
        return torch.add(hidden, self.down_proj(widened))


class LanguageModel(nn.Module):
    """Two blocks over 32 tokens; gives its loss where it is given labels, as Hugging Face's Trainer asks."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(32, 32)
        self.blocks = nn.ModuleList(Block(32) for _ in range(2))
        self.norm = nn.LayerNorm(32)
        self.lm_head = nn.Linear(32, 32, bias=False)

    def forward(self, input_ids: Tensor, labels: Tensor) -> dict[str, Tensor]:
        length = input_ids.shape[1]
        mask = torch.full((length, length), float("-inf"), device=input_ids.device).triu(1)
        hidden = self.embedding(input_ids)
        for block in self.blocks:
            hidden = block(hidden, mask)
        logits = self.lm_head(self.norm(hidden))
        loss = nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
        return {"loss": loss, "logits": logits}


def counting(start: int) -> Tensor:
    """Sixteen tokens, each one more than the last."""
    return (start + torch.arange(16)) % 32


torch.manual_seed(0)
model = LanguageModel()
dataset = [{"input_ids": counting(start), "labels": counting(start)} for start in range(256)]
batches = DataLoader(cast("Dataset[dict[str, Tensor]]", dataset), batch_size=8)


def evaluate(model: nn.Module) -> float:
    """The loss on what it trains on."""
    with torch.no_grad():
        return float(model(**{key: torch.stack([row[key] for row in dataset[:32]]) for key in dataset[0]})["loss"])
