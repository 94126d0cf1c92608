"""Whole plans of real models, one architecture a test: every matrix a record, every vector kept in full."""

import pytest
import torch

from optim.plan.blocks import ADAM_MINI_SECOND_MOMENTS, Block, BlockKind, BlockPlan, Slice
from optim.plan.placement import plan_blocks
from tests.factories.architectures import ARCHITECTURES, outline
from tests.factories.blocks import attention, embedding, fused, gate_and_up, head, made, mlp

LLAMA = ("q_proj", "k_proj", "v_proj", "o_proj")
LAYER = "model.layers.0"


def plan_of(name: str) -> BlockPlan:
    return plan_blocks(outline(name), second_moments=ADAM_MINI_SECOND_MOMENTS)


def llama_like(attention_blocks: list[Block], mlp_blocks: list[Block], *, tied: bool = False) -> list[Block]:
    return [embedding("model.embed_tokens.weight", 64), *attention_blocks, *mlp_blocks, *([] if tied else [head()])]


def llama_mlp(path: str = f"{LAYER}.mlp", width: int = 80) -> list[Block]:
    return [
        mlp(f"{path}.gate_proj.weight", width, 32),
        mlp(f"{path}.up_proj.weight", width, 32),
        mlp(f"{path}.down_proj.weight", 32, width),
    ]


def llama_attention(query: int, key: int, head_size: int) -> list[Block]:
    return attention(f"{LAYER}.self_attn", LLAMA, (query, key), head_size)


def experts(path: str, width: int) -> list[Block]:
    """Two experts stacked out × in."""
    down = [made(f"{path}.down_proj", BlockKind.MLP, (32, width), index=index, label=str(index)) for index in range(2)]
    gates = [block for index in range(2) for block in gate_and_up(f"{path}.gate_up_proj", width, index)]
    return [*gates, *down]


def router(parameter: str, rows: int = 2) -> Block:
    return made(parameter, BlockKind.ROUTER, (rows, 32))


def gpt2_cross_attention() -> list[Block]:
    path = "transformer.h.0"

    def turned(name: str, kind: BlockKind, shape: tuple[int, int], **fields: object) -> Block:
        return made(f"{path}.{name}.weight", kind, shape, output_axis=1, head_size=8, **fields)

    return [
        embedding("transformer.wte.weight", 64),
        embedding("transformer.wpe.weight", 32),
        *fused(f"{path}.attn.c_attn.weight", (32, 32), 8, axis=1),
        turned("attn.c_proj", BlockKind.ATTENTION_OUTPUT, (32, 32)),
        turned("crossattention.c_attn", BlockKind.KEY, (32, 32), part=Slice(axis=1, start=0, length=32)),
        turned("crossattention.c_attn", BlockKind.VALUE, (32, 32), part=Slice(axis=1, start=32, length=32)),
        turned("crossattention.q_attn", BlockKind.QUERY, (32, 32)),
        turned("crossattention.c_proj", BlockKind.ATTENTION_OUTPUT, (32, 32)),
        turned("mlp.c_fc", BlockKind.MLP, (32, 128)),
        turned("mlp.c_proj", BlockKind.MLP, (128, 32)),
    ]


def bert() -> list[Block]:
    layer = "bert.encoder.layer.0"
    names = ("self.query", "self.key", "self.value", "output.dense")
    return [
        embedding("bert.embeddings.word_embeddings.weight", 64),
        embedding("bert.embeddings.position_embeddings.weight", 32),
        embedding("bert.embeddings.token_type_embeddings.weight", 2),
        *attention(f"{layer}.attention", names, (32, 32), 8),
        mlp(f"{layer}.intermediate.dense.weight", 80, 32),
        mlp(f"{layer}.output.dense.weight", 32, 80),
        made("bert.pooler.dense.weight", BlockKind.TASK_HEAD, (32, 32)),
        made("cls.predictions.transform.dense.weight", BlockKind.TASK_HEAD, (32, 32)),
        made("cls.seq_relationship.weight", BlockKind.TASK_HEAD, (2, 32)),
    ]


def torch_encoder() -> list[Block]:
    layer = "layers.0"
    return [
        embedding("embed.weight", 64),
        embedding("positions.weight", 16),
        *fused(f"{layer}.self_attn.in_proj_weight", (32, 32), 8),
        made(f"{layer}.self_attn.out_proj.weight", BlockKind.ATTENTION_OUTPUT, (32, 32)),
        mlp(f"{layer}.linear1.weight", 80, 32),
        mlp(f"{layer}.linear2.weight", 32, 80),
        made("cross.q_proj_weight", BlockKind.QUERY, (32, 32), head_size=8),
        made("cross.k_proj_weight", BlockKind.KEY, (32, 24), head_size=8),
        made("cross.v_proj_weight", BlockKind.VALUE, (32, 20)),
        made("cross.out_proj.weight", BlockKind.ATTENTION_OUTPUT, (32, 32)),
        head("head.weight"),
    ]


def lora() -> list[Block]:
    def adapter(target: str, outputs: int) -> list[Block]:
        path = f"{LAYER}.self_attn.{target}"
        return [
            made(f"{path}.lora_A.default.weight", BlockKind.ADAPTER, (4, 32)),
            made(f"{path}.lora_B.default.weight", BlockKind.ADAPTER, (outputs, 4)),
        ]

    return [*adapter("q_proj", 32), *adapter("v_proj", 16)]


MOE = f"{LAYER}.mlp"
PLANS: dict[str, list[Block]] = {  # the tables of tests/plans have the others
    "gpt2 with cross-attention": gpt2_cross_attention(),
    "qwen2-moe": llama_like(
        llama_attention(32, 16, 8),
        [
            router(f"{MOE}.gate.weight"),
            *experts(f"{MOE}.experts", 24),
            *llama_mlp(f"{MOE}.shared_expert", 40),
            router(f"{MOE}.shared_expert_gate.weight", 1),
        ],
    ),
    "torch encoder": torch_encoder(),
    "mistral with lora": lora(),
}


@pytest.mark.parametrize("name", PLANS)
def test_every_matrix_has_its_place(name: str):
    matrices = [block for block in plan_of(name) if block.kind is not BlockKind.VECTOR]
    assert sorted(matrices, key=lambda block: block.name) == sorted(PLANS[name], key=lambda block: block.name)


@pytest.mark.parametrize("name", PLANS)
def test_every_other_parameter_is_a_vector_kept_in_full(name: str):
    placed = {block.parameter for block in PLANS[name]}
    vectors = [
        made(parameter, BlockKind.VECTOR, tuple(value.shape))
        for parameter, value in outline(name).named_parameters()
        if value.requires_grad and parameter not in placed
    ]
    assert [block for block in plan_of(name) if block.kind is BlockKind.VECTOR] == vectors
    assert not any(block.decays for block in vectors)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_element_lies_in_exactly_one_block(name: str):
    plan = plan_of(name)
    for parameter, value in outline(name).named_parameters():
        covered = torch.zeros(value.shape)
        for block in plan.by_parameter.get(parameter, ()):
            view = block.view(covered)
            assert tuple(view.shape) == block.shape
            view.add_(1)
        assert bool((covered == float(value.requires_grad)).all()), parameter


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_names_and_state_keys_are_unique(name: str):
    plan = plan_of(name)
    names = [block.name for block in plan]
    keys = [(block.parameter, block.key(state)) for block in plan for state in block.state_shapes]
    assert len(set(names)) == len(names)
    assert len(set(keys)) == len(keys)
