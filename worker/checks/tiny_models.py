"""The smallest real models, with something to learn: for what an optimizer promises, and for tests."""

import torch
from torch import Tensor, nn

from worker.families import family_classes


def tiny_gpt2(seed: int = 0, dtype: torch.dtype = torch.float32) -> nn.Module:
    """Return a GPT-2 of two layers, d = 32, two heads, tied head, no dropout: 30 thousand parameters."""
    config_class, model_class = family_classes("gpt2")
    torch.manual_seed(seed)
    config = config_class(
        vocab_size=64,
        n_positions=32,
        n_embd=32,
        n_layer=2,
        n_head=2,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=0,
        eos_token_id=0,
    )
    model: nn.Module = model_class(config)
    nn.Module.to(model, dtype)  # in place; the override in transformers publishes no types
    return model


def tiny_llama(*, tied: bool = False) -> nn.Module:
    """Return a model of one layer, d = 32, four heads over two key-value heads."""
    config_class, model_class = family_classes("llama")
    torch.manual_seed(0)
    config = config_class(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=80,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=32,
        tie_word_embeddings=tied,
        bos_token_id=0,
        eos_token_id=0,
    )
    model: nn.Module = model_class(config)
    return model


def batch(seed: int) -> Tensor:
    """Return four sequences of 16 tokens with something to learn: counting, from a random start."""
    starts = torch.randint(0, 48, (4, 1), generator=torch.Generator().manual_seed(seed))
    return starts + torch.arange(16)


def loss_of(model: nn.Module, seed: int) -> Tensor:
    """Return the language-model loss on `batch(seed)`, on the model's device."""
    tokens = batch(seed).to(next(model.parameters()).device)
    logits = model(tokens).logits
    return nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1).float(), tokens[:, 1:].flatten())


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: range) -> list[float]:
    """Train plainly, one batch a step; returns the losses before each step."""
    losses = []
    for step in steps:
        optimizer.zero_grad()
        loss = loss_of(model, step)
        loss.backward()  # type: ignore[no-untyped-call]  # torch publishes no types for it
        optimizer.step()
        losses.append(loss.item())
    return losses
