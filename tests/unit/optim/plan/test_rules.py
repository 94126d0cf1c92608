"""Rules override the plan, in order, and are refused where they could not be meant."""

from typing import Any

import pytest
from torch import nn

from optim.errors import RuleError, UnplacedWeightsError
from optim.plan.blocks import ADAM_MINI_SECOND_MOMENTS, Block, FirstMoment, SecondMoment
from optim.plan.placement import plan_blocks
from optim.plan.rules import Rule
from worker.checks.tiny_models import tiny_gpt2


def moments(rules: list[Rule], name: str, **options: Any) -> Block:
    return next(block for block in plan_blocks(tiny_gpt2(), rules=rules, **options) if block.name == name)


DOWN = "transformer.h.1.mlp.c_proj.weight"
KEY = "transformer.h.0.attn.c_attn.weight:key"


def test_a_rule_changes_what_it_states_and_nothing_else():
    plain, ruled = (
        plan_blocks(tiny_gpt2()),
        plan_blocks(tiny_gpt2(), rules=[Rule("*.mlp.c_proj.weight", first_moment=FirstMoment.FULL)]),
    )
    changed = {after.name: after for before, after in zip(plain, ruled, strict=True) if before != after}
    assert set(changed) == {"transformer.h.0.mlp.c_proj.weight", DOWN}
    assert changed[DOWN].first_moment is FirstMoment.FULL
    assert changed[DOWN].rank == 0
    assert changed[DOWN].second_moment is SecondMoment.ELEMENT


def test_a_rule_may_speak_of_one_block_of_a_fused_parameter():
    plan = plan_blocks(tiny_gpt2(), rules=[Rule("*.c_attn.weight:key", rank=7)])
    assert {block.rank for block in plan if block.name.endswith(":key")} == {7}
    assert {block.rank for block in plan if block.name.endswith(":query")} == {2}


def test_later_rules_win():
    rules = [Rule("*.mlp.*.weight", rank=5), Rule(DOWN, first_moment=FirstMoment.NONE)]
    assert moments(rules, DOWN).first_moment is FirstMoment.NONE
    assert moments(rules, "transformer.h.0.mlp.c_fc.weight").rank == 5
    assert moments(rules[::-1], DOWN).rank == 5


def test_a_rank_asks_for_a_low_rank_momentum():
    value = moments([Rule("*:value", rank=3)], "transformer.h.0.attn.c_attn.weight:value")
    assert (value.first_moment, value.rank) == (FirstMoment.LOW_RANK, 3)


def test_second_moments_can_be_ruled_too():
    element = [Rule("*:key", second_moment=SecondMoment.ELEMENT)]
    ruled = moments(element, KEY, second_moments=ADAM_MINI_SECOND_MOMENTS)
    assert (ruled.second_moment, ruled.head_size, ruled.rank) == (SecondMoment.ELEMENT, 1, 2)
    heads = moments([Rule("*:key", second_moment=SecondMoment.HEAD)], KEY)
    assert (heads.head_size, heads.state_shapes["exp_avg_sq"]) == (16, (2,))


def test_a_momentum_by_rule_places_a_weight_that_no_role_does():
    model = nn.Module()
    model.mixer = nn.Linear(6, 5)
    with pytest.raises(UnplacedWeightsError, match=r"mixer\.weight"):
        plan_blocks(model, rules=[Rule("mixer.weight", second_moment=SecondMoment.ELEMENT)], unknown="error")
    (matrix, _) = plan_blocks(model, rules=[Rule("mixer.weight", rank=2)])
    assert (str(matrix.kind), matrix.first_moment, matrix.rank) == ("other", FirstMoment.LOW_RANK, 2)


@pytest.mark.parametrize(
    ("rule", "fault"),
    [
        ({"pattern": "*.nothing", "rank": 1}, r"the rule '\*\.nothing' fits no trainable block; print\(plan_blocks"),
        ({"pattern": "*.ln_1.weight", "rank": 1}, r"ln_1\.weight \(32,\) is not a matrix and has no low-rank momentum"),
        (
            {"pattern": "*.ln_1.weight", "second_moment": SecondMoment.NEURON},
            r"ln_1\.weight \(32,\) is not a matrix and has no second moment per neuron",
        ),
        (
            {"pattern": "*:key", "rank": 33},
            r"c_attn\.weight:key \(32, 32\) has no momentum of rank 33: it goes from 1 to",
        ),
        ({"pattern": "*:key", "rank": 0}, "has no momentum of rank 0"),
        (
            {"pattern": "*.mlp.c_fc.weight", "second_moment": SecondMoment.HEAD},
            "is not divided into heads and has no second moment per head",
        ),
        ({"pattern": "*"}, "states nothing; give it a first_moment, second_moment or rank"),
        ({"pattern": "*:key", "rank": 2, "first_moment": FirstMoment.FULL}, "asks for a full momentum of rank 2"),
    ],
)
def test_rules_that_cannot_be_meant_are_refused(rule, fault):
    with pytest.raises(RuleError, match=fault):
        plan_blocks(tiny_gpt2(), rules=[Rule(**rule)])


def test_a_moment_may_be_named_by_its_text():
    texts: dict[str, Any] = {"first_moment": "full", "second_moment": "element"}
    rule = Rule("*.mlp.c_proj.weight", **texts)
    assert rule == Rule("*.mlp.c_proj.weight", first_moment=FirstMoment.FULL, second_moment=SecondMoment.ELEMENT)
    assert rule.first_moment is FirstMoment.FULL and rule.second_moment is SecondMoment.ELEMENT


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"first_moment": "fulll"}, "has first_moment='fulll'; it must be one of full, low rank, none"),
        ({"second_moment": "xyz"}, "has second_moment='xyz'; it must be one of element"),
        ({"rank": True}, "has rank=True; it must be a whole number from 1"),
        ({"rank": "8"}, "has rank='8'; it must be a whole number from 1"),
    ],
)
def test_what_no_block_can_keep_is_refused_at_once(asked, said):
    with pytest.raises(RuleError, match=said):
        Rule("*.mlp.c_proj.weight", **asked)
