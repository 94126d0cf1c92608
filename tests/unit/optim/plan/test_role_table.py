"""The table of roles, and the rows that users add."""

from collections.abc import Iterator

import pytest
import torch
from torch import nn

from optim.adapm import AdaPM, AdaPMMini
from optim.errors import RuleError, UnplacedWeightsError
from optim.plan import BlockKind, FirstMoment, Heads, Role, Rule, plan_blocks, register_role, role_table
from optim.plan.blocks import ADAM_MINI_SECOND_MOMENTS, Slice
from tests.plans.architectures import ARCHITECTURES
from tests.plans.libraries import CausalSelfAttention
from tests.unit.optim.plan import test_fused_maps

Q, K, V = BlockKind.QUERY, BlockKind.KEY, BlockKind.VALUE


@pytest.fixture(autouse=True)
def own_registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(role_table, "_REGISTERED", [])
    role_table._rows_of.cache_clear()
    yield
    role_table._rows_of.cache_clear()


class Mixing(nn.Module):
    """A library's own attention: two heads of 4, query and key of each after each other, nothing said of heads."""

    def __init__(self, *, turned: bool = False) -> None:
        super().__init__()
        self.mixed = nn.Parameter(torch.zeros((6, 16) if turned else (16, 6)))


class Derived(Mixing):
    """A subclass of it."""


HEADS = Heads(query=2, key_value=2, size=4)


@pytest.mark.parametrize("cls", [Mixing, Derived])
def test_a_registered_role_places_what_no_structure_tells(cls: type[Mixing]):
    with pytest.raises(UnplacedWeightsError, match=r"register_role"):
        plan_blocks(cls(), unknown="error")
    register_role(Role("Mixing", "mixed", (Q, K), repeats="query head", heads=HEADS))
    blocks = plan_blocks(cls(), second_moments=ADAM_MINI_SECOND_MOMENTS).blocks
    assert [(block.name, block.kind, block.part, block.head_size) for block in blocks] == [
        (f"mixed:{head}.{kind}", kind, Slice(axis=0, start=8 * head + 4 * (kind is K), length=4), 4)
        for head in range(2)
        for kind in (Q, K)
    ]


def test_heads_may_be_read_from_the_module_and_outputs_be_the_second_axis():
    def heads(module: nn.Module) -> Heads:
        assert isinstance(module, Mixing)
        return HEADS

    register_role(Role("Mix*", "mixed", (Q, K), repeats=2, heads=heads, output_axis=1))
    blocks = [(block.shape, str(block.part), block.output_axis) for block in plan_blocks(Mixing(turned=True))]
    assert blocks == [((6, 4), f"[:, {start}:{start + 4}]", 1) for start in (0, 4, 8, 12)]


def test_kinds_that_have_no_heads_share_the_outputs_equally():
    register_role(Role("Mixing", "mixed", (BlockKind.MLP, BlockKind.MLP)))
    assert [block.name for block in plan_blocks(Mixing())] == ["mixed:0.mlp", "mixed:1.mlp"]
    register_role(Role("Mixing", "mixed", BlockKind.MIXER))
    (block,) = plan_blocks(Mixing())
    assert (block.kind, block.part, block.first_moment) == (BlockKind.MIXER, None, FirstMoment.FULL)


@pytest.mark.parametrize(
    "role",
    [
        Role("Mixing", "mixed", (Q, K, V), heads=HEADS),
        Role("Mixing", "mixed", (Q, K), repeats="query head"),
        Role("Mixing", "mixed", (Q, K), repeats=3, heads=HEADS),
        Role("Mixing", "mixed", (Q, K), heads=Heads(query=2, key_value=2, size=3)),
        Role("Mixing", "mixed", (Q, BlockKind.GATE), repeats=4, heads=HEADS),
        Role("Mixing", "mixed", BlockKind.MLP, is_stack=True),
    ],
)
def test_a_registered_role_that_cannot_divide_its_weight_is_an_error(role: Role):
    register_role(role)
    with pytest.raises(RuleError, match=r"^mixed \(16, 6\) .*'mixed' in 'Mixing'"):
        plan_blocks(Mixing(), unknown="full")


@pytest.mark.parametrize(("kinds", "repeats"), [((), 1), (Q, 0), (Q, "head"), (Q, 1.5)])
def test_a_role_that_says_nothing_or_repeats_never_is_refused(kinds, repeats):
    with pytest.raises(RuleError, match="the role of 'mixed' in 'Mixing'"):
        Role("Mixing", "mixed", kinds, repeats=repeats)


def test_a_class_of_a_common_name_is_litgpts_only_with_its_query_groups():
    older = CausalSelfAttention("attn")
    assert len(plan_blocks(older).parameter_blocks["attn.weight"]) == 6
    del older.config.n_query_groups
    with pytest.raises(UnplacedWeightsError, match=r"attn\.weight \(64, 32\)"):
        plan_blocks(older, unknown="error")


class Stacks(nn.Module):
    """Experts under names of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Parameter(torch.zeros(3, 8, 6))


def test_a_stack_is_a_block_or_several_for_every_expert():
    register_role(Role("Stacks", "up", BlockKind.MLP, is_stack=True))
    assert [(block.name, block.shape) for block in plan_blocks(Stacks())] == [(f"up:{e}", (8, 6)) for e in range(3)]
    register_role(Role("Stacks", "up", (BlockKind.GATE, BlockKind.MLP), is_stack=True))
    assert [(block.name, block.shape) for block in plan_blocks(Stacks())] == [
        (f"up:{expert}.{kind}", (4, 6)) for expert in range(3) for kind in ("gate", "mlp")
    ]


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("gpt-neox", Role("GPTNeoXAttention", "query_key_value.weight", (Q, K, V))),
        ("bloom", Role("BloomAttention", "query_key_value.weight", (K, Q, V), repeats="query head")),
        ("codegen", Role("CodeGenAttention", "qkv_proj.weight", (Q, K, V), repeats=4)),
        ("gpt2", Role("GPT2Attention", "c_attn.weight", (Q, K, V), repeats="query head")),
    ],
)
def test_a_wrong_order_is_told_from_the_models_forward(name: str, wrong: Role):
    """That the test of the fused maps can fail; and that registered rows win over the table and structure."""
    register_role(wrong)
    with pytest.raises(AssertionError):
        test_fused_maps.test_the_rows_of_a_head_are_the_models_own(name)


@pytest.mark.parametrize("cls", [AdaPM, AdaPMMini])
def test_convolutions_and_class_tokens_train(cls: type[AdaPM]):
    torch.manual_seed(0)
    model = ARCHITECTURES["vit"]()
    optimizer = cls.for_model(model, 1e-2)
    originals = {name: value.detach().clone() for name, value in model.named_parameters()}
    model(pixel_values=torch.randn(2, 3, 16, 16)).logits.square().sum().backward()
    optimizer.step()
    for name in ("vit.embeddings.cls_token", "vit.embeddings.patch_embeddings.projection.weight"):
        assert not torch.equal(originals[name], model.get_parameter(name))


def test_pieces_of_a_query_keep_full_momentum_unless_a_rule_says_otherwise():
    with torch.device("meta"):
        model = ARCHITECTURES["gpt-neox"]()
    rules = [Rule("*.query_key_value.weight:*.query", first_moment=FirstMoment.LOW_RANK)]
    for rule, query in (([], FirstMoment.FULL), (rules, FirstMoment.LOW_RANK)):
        plan = plan_blocks(model, rules=rule)
        moment_by_kind = {
            block.kind: block.first_moment for block in plan if "query_key_value.weight" in block.parameter
        }
        assert moment_by_kind == {Q: query, K: FirstMoment.FULL, V: FirstMoment.FULL}
