"""Modules with the names and shapes of libraries that are not installed here; what a fused map is divided into is done
as the library does it, for the tests that look at the forward pass."""

from collections.abc import Callable
from types import SimpleNamespace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

WIDTH, HEADS, KEY_VALUE_HEADS, SIZE, INNER, TOKENS = 32, 4, 2, 8, 80, 100


class TwoLayers(nn.Module):
    """An embedding, an attention, an MLP, and a head of the usual kind."""

    def __init__(self, attention: nn.Module, mlp: nn.Module, names: tuple[str, str]) -> None:
        super().__init__()
        embedding, head = names
        self.add_module(embedding, nn.Embedding(TOKENS, WIDTH))
        self.layers = nn.ModuleList([nn.ModuleDict({"attn": attention, "mlp": mlp})])
        self.add_module(head, nn.Linear(WIDTH, TOKENS, bias=False))
        self._embedding = embedding

    def forward(self, input_ids: Tensor) -> Tensor:
        """Return the attention's output."""
        layer = self.layers[0]
        assert isinstance(layer, nn.ModuleDict)
        output: Tensor = layer["attn"](self.get_submodule(self._embedding)(input_ids))
        return output


def gated(names: tuple[str, str, str]) -> nn.Module:
    """A gated MLP: gate, up and down under these names."""
    gate, up, down = names
    shapes = {gate: (WIDTH, INNER), up: (WIDTH, INNER), down: (INNER, WIDTH)}
    return nn.ModuleDict({name: nn.Linear(*shape, bias=False) for name, shape in shapes.items()})


def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Causal attention; all are batch × positions × heads × size, and the outcome has its heads side by side."""
    query, key, value = (part.transpose(1, 2) for part in (query, key, value))
    return F.scaled_dot_product_attention(query, key, value, is_causal=True).transpose(1, 2).flatten(2)


class Projections(nn.Module):
    """Query, key, value and output under names of the library's."""

    def __init__(self, names: tuple[str, str, str, str]) -> None:
        super().__init__()
        query, key, value, output = names
        for name, width in ((query, HEADS * SIZE), (key, KEY_VALUE_HEADS * SIZE), (value, KEY_VALUE_HEADS * SIZE)):
            self.add_module(name, nn.Linear(WIDTH, width, bias=False))
        self.add_module(output, nn.Linear(HEADS * SIZE, WIDTH, bias=False))


class MultiHeadAttention(Projections):
    """torchtune's."""

    def __init__(self) -> None:
        super().__init__(("q_proj", "k_proj", "v_proj", "output_proj"))
        self.num_heads, self.num_kv_heads, self.head_dim = HEADS, KEY_VALUE_HEADS, SIZE


class CountedAttention(Projections):
    """OLMo-core's and torchtitan's `Attention`, which differ in the names of their maps."""

    def __init__(self, names: tuple[str, str, str, str]) -> None:
        super().__init__(names)
        self.n_heads, self.n_kv_heads, self.head_dim = HEADS, KEY_VALUE_HEADS, SIZE


class Attention(nn.Module):
    """lucidrains's: query, key and value in one map, a dropout behind the output."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = HEADS
        self.to_qkv = nn.Linear(WIDTH, 3 * HEADS * SIZE, bias=False)
        self.to_out = nn.Sequential(nn.Linear(HEADS * SIZE, WIDTH), nn.Dropout(0.0))

    def forward(self, x: Tensor) -> Tensor:
        """Return the attention by heads, one after the other."""
        parts = self.to_qkv(x).chunk(3, dim=-1)
        output: Tensor = self.to_out(attend(*(part.unflatten(-1, (HEADS, SIZE)) for part in parts)))
        return output


class CausalSelfAttention(nn.Module):
    """litgpt's: `qkv` has all queries, then keys, then values; `attn`, in older releases, those of each group."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.config = SimpleNamespace(n_head=HEADS, n_query_groups=KEY_VALUE_HEADS, head_size=SIZE)
        self.is_grouped = name == "attn"
        self.add_module(name, nn.Linear(WIDTH, (HEADS + 2 * KEY_VALUE_HEADS) * SIZE, bias=False))
        self.proj = nn.Linear(HEADS * SIZE, WIDTH, bias=False)
        self._name = name

    def forward(self, x: Tensor) -> Tensor:
        """Divided as the name says."""
        mixed = self.get_submodule(self._name)(x)
        shared = HEADS // KEY_VALUE_HEADS
        if self.is_grouped:
            groups = mixed.unflatten(-1, (KEY_VALUE_HEADS, shared + 2, SIZE))
            query, key, value = groups.split((shared, 1, 1), dim=-2)
            query, key, value = (part.flatten(2, 3) for part in (query, key, value))
        else:
            parts = mixed.split((HEADS * SIZE, KEY_VALUE_HEADS * SIZE, KEY_VALUE_HEADS * SIZE), dim=-1)
            query, key, value = (part.unflatten(-1, (-1, SIZE)) for part in parts)
        key, value = (part.repeat_interleave(shared, dim=2) for part in (key, value))
        output: Tensor = self.proj(attend(query, key, value))
        return output


class GroupedExperts(nn.Module):
    """torchtitan's: three stacks, experts × outputs × inputs."""

    def __init__(self, names: tuple[str, str, str]) -> None:
        super().__init__()
        up, down, gate = names
        self.register_parameter(up, nn.Parameter(torch.zeros(2, INNER, WIDTH)))
        self.register_parameter(down, nn.Parameter(torch.zeros(2, WIDTH, INNER)))
        self.register_parameter(gate, nn.Parameter(torch.zeros(2, INNER, WIDTH)))


class TokenChoiceTopKRouter(nn.Module):
    """torchtitan's."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(WIDTH, 2, bias=False)


class ScaledLinear(nn.Module):
    """A frozen map that IA3 scales, as PEFT wraps it: (outputs, 1), or (1, inputs) in a feed-forward."""

    def __init__(self, base: nn.Linear, shape: tuple[int, int]) -> None:
        super().__init__()
        self.base_layer = base.requires_grad_(False)
        self.ia3_l = nn.ParameterDict({"default": nn.Parameter(torch.ones(shape))})


class Lora(nn.Module):
    """A frozen linear map with a trained update of rank 4, as PEFT wraps it."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base_layer = base.requires_grad_(False)
        self.lora_A = nn.ModuleDict({"default": nn.Linear(base.in_features, 4, bias=False)})
        self.lora_B = nn.ModuleDict({"default": nn.Linear(4, base.out_features, bias=False)})


def lora() -> nn.Module:
    """torchtune's attention, everything frozen but adapters of query and value."""
    model = MODELS["torchtune"]().requires_grad_(False)
    attention = model.get_submodule("layers.0.attn")
    for name in ("q_proj", "v_proj"):
        base = attention.get_submodule(name)
        assert isinstance(base, nn.Linear)
        attention.add_module(name, Lora(base))
    return model


class TorchEncoder(nn.Module):
    """torch's own layers behind an embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(TOKENS, WIDTH)
        self.positions = nn.Embedding(16, WIDTH)
        self.layers = nn.ModuleList([nn.TransformerEncoderLayer(WIDTH, HEADS, INNER)])
        self.cross = nn.MultiheadAttention(WIDTH, HEADS, kdim=24, vdim=20, add_bias_kv=True)
        self.head = nn.Linear(WIDTH, TOKENS, bias=False)


def ia3() -> nn.Module:
    """torchtune's attention, frozen, with scales for keys, values and the MLP."""
    attention, mlp = MultiHeadAttention().requires_grad_(False), gated(("w1", "w3", "w2")).requires_grad_(False)
    for module, name, shape in (
        (attention, "k_proj", (KEY_VALUE_HEADS * SIZE, 1)),
        (attention, "v_proj", (KEY_VALUE_HEADS * SIZE, 1)),
        (mlp, "w2", (1, INNER)),
    ):
        base = module.get_submodule(name)
        assert isinstance(base, nn.Linear)
        module.add_module(name, ScaledLinear(base, shape))
    model = TwoLayers(attention, mlp, ("tok_embeddings", "output"))
    for name in ("tok_embeddings", "output"):
        model.get_submodule(name).requires_grad_(False)
    return model


def torchtitan_experts(*names: str) -> nn.Module:
    """torchtitan's attention with a mixture of experts."""
    up, down, gate = names
    mixture = nn.ModuleDict({"experts": GroupedExperts((up, down, gate)), "router": TokenChoiceTopKRouter()})
    return TwoLayers(CountedAttention(("wq", "wk", "wv", "wo")), mixture, ("tok_embeddings", "output"))


MODELS: dict[str, Callable[[], nn.Module]] = {
    "torchtune": lambda: TwoLayers(MultiHeadAttention(), gated(("w1", "w3", "w2")), ("tok_embeddings", "output")),
    "olmo-core": lambda: TwoLayers(
        CountedAttention(("w_q", "w_k", "w_v", "w_out")), gated(("w1", "w3", "w2")), ("embeddings", "w_out")
    ),
    "torchtitan-experts": lambda: torchtitan_experts("w1", "w2", "w3"),
    "torchtitan-experts-2026": lambda: torchtitan_experts("w1_EFD", "w2_EDF", "w3_EFD"),
    "litgpt": lambda: TwoLayers(CausalSelfAttention("qkv"), gated(("fc_1", "fc_2", "proj")), ("wte", "lm_head")),
    "litgpt-older": lambda: TwoLayers(CausalSelfAttention("attn"), gated(("fc_1", "fc_2", "proj")), ("wte", "lm_head")),
    "lucidrains": lambda: TwoLayers(Attention(), gated(("0", "1", "2")), ("token_emb", "to_logits")),
    "ia3": ia3,
    "lora": lora,
    "torch-encoder": TorchEncoder,
}
