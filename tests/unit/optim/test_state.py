"""State bytes: what real tensors hold, counted once, and the figures that the project quotes."""

from functools import cache

import pytest
import torch
from torch import nn
from transformers.models.gpt2.configuration_gpt2 import GPT2Config
from transformers.models.gpt2.modeling_gpt2 import GPT2LMHeadModel
from transformers.models.llama.configuration_llama import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaForCausalLM

from optim.adapm import AdaPM, AdaPMMini
from optim.builder import build
from optim.catalog import names
from optim.state import SEVERAL, StateBytes, allocated_state_bytes, state_bytes
from tests.architecture.tree import REPOSITORY
from worker.checks.tiny_models import tiny_gpt2, train

GPT2_124M = GPT2Config()
LLAMA_130M = LlamaConfig(hidden_size=768, intermediate_size=2048, num_hidden_layers=12, num_attention_heads=12)
GPT2_TINY = GPT2Config(vocab_size=256, n_positions=256, n_embd=128, n_layer=4, n_head=4, bos_token_id=0, eos_token_id=0)


def on_meta(config: GPT2Config | LlamaConfig) -> nn.Module:
    with torch.device("meta"):
        return GPT2LMHeadModel(config) if isinstance(config, GPT2Config) else LlamaForCausalLM(config)


@cache
def models_of_the_table() -> tuple[nn.Module, nn.Module]:
    return on_meta(GPT2_124M), on_meta(LLAMA_130M)


@pytest.mark.parametrize("name", names())
def test_the_documents_have_the_bytes_a_parameter_of_every_optimizer(name):
    """On GPT-2 124M, whose head is tied, and on Llama-130M."""
    document = (REPOSITORY / "docs" / "optimizers.md").read_text()
    (row,) = [line for line in document.splitlines() if line.startswith(f"| `{name}` |")]
    gpt2, llama = (
        allocated_state_bytes(build(name, model, lr=1e-3)).total_bytes
        / sum(value.numel() for value in model.parameters())
        for model in models_of_the_table()
    )
    assert f"| {gpt2:.2f} | {llama:.2f} |" in row


@pytest.mark.parametrize("cls", [AdaPM, AdaPMMini])
@pytest.mark.parametrize("state_dtype", [None, torch.bfloat16])
def test_the_plan_foretells_the_real_bytes_but_the_step_counters(cls, state_dtype):
    model = tiny_gpt2()
    optimizer = cls.for_model(model, 1e-3, state_dtype=state_dtype)
    assert state_bytes(optimizer).total_bytes == 0
    train(model, optimizer, range(1))
    held = state_bytes(optimizer)
    assert held.total_bytes - held.counter_bytes == optimizer.plan.state_bytes
    assert held.counter_bytes == 4 * len(list(model.parameters()))
    assert sum(held.by_block.values()) == optimizer.plan.state_bytes
    assert sum(held.by_state.values()) == held.total_bytes


def test_it_says_what_each_kind_of_block_and_each_state_holds():
    model = tiny_gpt2()
    optimizer = AdaPMMini.for_model(model, 1e-3)
    optimizer.allocate_state()
    matrix = 32 * 32
    assert state_bytes(optimizer).by_block == {
        "embedding": 4 * (64 + 32),
        "vector": 4 * 2 * (2 * (4 * 32 + 96 + 32 + 128 + 32) + 64),
        "query": 4 * 2 * (2 * 2 * 32 + 2),
        "key": 4 * 2 * (2 * 2 * 32 + 2),
        "value": 4 * 2 * (matrix + 32),
        "attention_output": 4 * 2 * 32,
        "mlp": 4 * 2 * (2 * 2 * (32 + 128) + 128 + 32),
    }


def test_an_optimizer_without_blocks_is_counted_by_its_tensors():
    model = nn.Linear(3, 5)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(3)).sum().backward()
    optimizer.step()
    assert state_bytes(optimizer) == StateBytes(
        total_bytes=2 * 20 * 4 + 8,
        counter_bytes=8,
        by_state={"step": 8, "exp_avg": 80, "exp_avg_sq": 80},
        by_block={},
    )


def test_the_model_tells_apart_what_an_optimizer_without_a_plan_keeps():
    """A fused parameter's state of its own shape is shared out; any other cannot be."""
    model = on_meta(GPT2_TINY)
    held = allocated_state_bytes(build("adamw", model, lr=1e-3), model)
    of_one_matrix = 4 * 2 * 4 * 128 * 128
    assert sum(held.by_block.values()) + held.counter_bytes == held.total_bytes
    assert [held.by_block[kind] for kind in ("query", "key", "value")] == [of_one_matrix] * 3
    fused = model.get_parameter("transformer.h.0.attn.c_attn.weight")
    optimizer = torch.optim.SGD(model.parameters())
    optimizer.state[fused] = {"row_means": torch.zeros(128), "step": torch.zeros(())}
    assert state_bytes(optimizer, model).by_block == {SEVERAL: 512}


def test_shared_storage_is_counted_once_and_nested_state_is_found():
    parameter = nn.Parameter(torch.zeros(4))
    optimizer = torch.optim.SGD([parameter])
    whole = torch.zeros(10)
    optimizer.state[parameter] = {"views": [whole[:5], (whole[5:], {"again": whole})], "count": 3}
    assert state_bytes(optimizer).total_bytes == 40


class Wrapped(torch.Tensor):
    """A tensor of one byte an element that looks like float32, as quantised optimizer state does."""

    codes: torch.Tensor

    @staticmethod
    def __new__(cls, codes: torch.Tensor) -> "Wrapped":
        tensor = torch.Tensor._make_wrapper_subclass(cls, codes.shape, dtype=torch.float32)
        assert isinstance(tensor, Wrapped)
        tensor.codes = codes
        return tensor

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["codes"], None

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, torch.Tensor], *_: object) -> "Wrapped":
        return Wrapped(inner["codes"])

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):  # type: ignore[override]  # torch's own form
        raise NotImplementedError(func)


def test_a_wrapper_tensor_is_counted_by_what_it_holds():
    parameter = nn.Parameter(torch.zeros(100))
    optimizer = torch.optim.SGD([parameter])
    optimizer.state[parameter] = {"exp_avg": Wrapped(torch.zeros(100, dtype=torch.uint8))}
    assert state_bytes(optimizer).total_bytes == 100


def test_foretelling_an_optimizer_without_a_plan_needs_meta_parameters():
    optimizer = torch.optim.AdamW(nn.Linear(3, 5).parameters())
    with pytest.raises(ValueError, match=r'AdamW has a parameter on cpu; .*torch\.device\("meta"\)'):
        allocated_state_bytes(optimizer)
