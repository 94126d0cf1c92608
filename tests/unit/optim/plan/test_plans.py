"""The plans of many architectures: as their tables say, and nothing lost or doubled."""

import pytest
import torch

from optim.plan.blocks import BlockKind, BlockPlan
from tests.plans.architectures import ARCHITECTURES, outline
from tests.plans.write import DOCUMENT, TABLES, document_of_roles, plan_of

PLANS: dict[str, BlockPlan] = {}


def plan(name: str) -> BlockPlan:
    if name not in PLANS:
        PLANS[name] = plan_of(name)
    return PLANS[name]


def test_every_architecture_has_a_table_and_every_table_an_architecture():
    assert len(ARCHITECTURES) >= 100
    assert {table.stem for table in TABLES.glob("*.txt")} == set(ARCHITECTURES)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_plan_is_as_its_table_says(name: str):
    """`python -m tests.plans.write` writes the tables; look at the difference before it is committed."""
    assert f"{plan(name)}\n" == (TABLES / f"{name}.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_trainable_number_lies_in_exactly_one_block(name: str):
    blocks = plan(name).by_parameter
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


def test_the_document_has_todays_table_of_roles_and_every_kind():
    text = DOCUMENT.read_text(encoding="utf-8")
    assert document_of_roles(text) == text
    reasons = text.partition("## What each kind keeps")[2].partition("\n\n**")[0]
    assert not [kind for kind in BlockKind if kind is not BlockKind.OTHER and f"`{kind}`" not in reasons]
