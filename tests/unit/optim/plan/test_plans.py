"""The plans of many architectures: as their tables say, and nothing lost or doubled."""

import pytest
import torch

from benchmarks import plan_coverage as coverage
from optim.plan import plan_blocks
from optim.plan.blocks import ADAM_MINI_SECOND_MOMENTS, BlockKind, BlockPlan
from tests.plans.architectures import ARCHITECTURES, outline
from tests.plans.write import TABLES, plan_of

PLANS: dict[str, BlockPlan] = {}


def plan(name: str) -> BlockPlan:
    if name not in PLANS:
        PLANS[name] = plan_of(name)
    return PLANS[name]


@pytest.mark.parametrize("name", TABLES)
def test_the_plan_is_as_its_table_says(name: str):
    """`python -m tests.plans.write` writes the tables; look at the difference before it is committed."""
    assert f"{plan(name)}\n" == TABLES[name].read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("model_type", "expected"),
    [
        ("afmoe", {"self_attn.gate_proj": "gate", "mlp.router.gate": "router"}),
        ("ctrl", {"attention.Wq": "query", "attention.Wk": "key", "attention.dense": "attention_output"}),
        ("deepseek_v4", {"self_attn.kv_proj": "latent", "self_attn.o_b_proj": "latent", "attn_hc.fn": "gate"}),
        (
            "dots3_note_text",
            {"self_attn.o_proj": "attention_output", "self_attn.g_proj": "gate"},
        ),  # whose config raises
        ("gemma4_text", {"model.per_layer_model_projection": "projection", "layers.0.per_layer_projection": "mlp"}),
        ("inkling2_text", {"self_attn.gate_proj": "gate", "rel_logits_proj": "projection", "q_l2_clip": "vector"}),
        ("laguna", {"self_attn.g_proj": "gate"}),
        ("longcat_flash", {"mlp.experts": "mlp", "router.classifier": "router"}),
        ("mimo_v2_flash", {"self_attn.k_proj": "key", "self_attn.v_proj": "value"}),
        ("modernbert-decoder", {"lm_head.dense": "task_head"}),
        ("moshi", {"k_proj.linear": "key", "mlp.fc1": "mlp"}),
        ("olmo_hybrid", {"layers.0.mlp.gate_proj": "mlp", "layers.0.mlp.down_proj": "mlp"}),
        ("rembert", {"predictions.decoder": "lm_head", "embedding_hidden_mapping_in": "projection"}),
        ("zaya", {"mlp.gate.router_mlp.fc1.weight": "router", "v_proj_delayed": "value", "o_proj": "attention_output"}),
    ],
)
def test_rules_place_every_weight_of_models_that_no_row_names(model_type: str, expected: dict[str, str]):
    plan = plan_blocks(coverage.outline(model_type), unknown="error")
    for part, kind in expected.items():
        kinds = {str(block.kind) for block in plan if part in block.parameter and len(block.shape) > 1}
        assert kinds == {kind}, part


@pytest.mark.parametrize(
    ("name", "part", "expected"),
    [
        ("gpt2-cross-attention", "crossattention.c_attn.weight", ["key [:, 0:32]", "value [:, 32:64]"]),
        ("gpt2-cross-attention", "crossattention.q_attn.weight", ["query"]),
        ("qwen2-moe", "mlp.shared_expert_gate.weight", ["router"]),
        ("qwen2-moe", "mlp.shared_expert.down_proj.weight", ["mlp"]),
        ("bert-pretraining", "pooler.dense.weight", ["task_head"]),
        ("bert-pretraining", "seq_relationship.weight", ["task_head"]),
        ("lora", "q_proj.lora_A", ["adapter"]),
        ("lora", "v_proj.lora_B", ["adapter"]),
        ("torch-encoder", "in_proj_weight", ["query [0:32]", "key [32:64]", "value [64:96]"]),
        ("torch-encoder", "cross.k_proj_weight", ["key"]),
        ("torch-encoder", "linear2.weight", ["mlp"]),
    ],
)
def test_a_weight_that_no_table_shows_has_its_blocks(name: str, part: str, expected: list[str]):
    blocks = [block for block in plan(name) if part in block.parameter]
    assert [f"{block.kind} {block.part or ''}".strip() for block in blocks] == expected


def test_per_layer_head_counts_are_read_from_the_maps():
    plan = plan_blocks(coverage.outline("mimo_v2_flash"), second_moments=ADAM_MINI_SECOND_MOMENTS, unknown="error")
    sizes = {(block.kind, block.shape[0]): block.head_size for block in plan if block.kind is BlockKind.KEY}
    assert sizes == {(BlockKind.KEY, 768): 192, (BlockKind.KEY, 1536): 192}


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_trainable_number_lies_in_exactly_one_block(name: str):
    blocks = plan(name).parameter_blocks
    for parameter, value in outline(name).named_parameters():
        covered = torch.zeros(value.shape)
        for block in blocks.get(parameter, ()):
            view = block.view(covered)
            assert tuple(view.shape) == block.shape
            view.add_(1)
        assert bool((covered == float(value.requires_grad)).all()), parameter


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_blocks_have_names_of_their_own_and_none_is_unplaced(name: str):
    keys = [(block.parameter, block.key(state)) for block in plan(name) for state in block.state_shapes]
    assert len(set(keys)) == len(keys)
    assert not [block.name for block in plan(name) if block.kind is BlockKind.OTHER]
