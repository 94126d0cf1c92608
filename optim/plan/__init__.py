"""From a model to its block plan: which weights are query, key, MLP, …, and what is kept for each of them. Nothing here
moves a weight or keeps a state.
"""

from optim.plan.blocks import Block as Block
from optim.plan.blocks import BlockKind as BlockKind
from optim.plan.blocks import BlockPlan as BlockPlan
from optim.plan.blocks import FirstMoment as FirstMoment
from optim.plan.blocks import SecondMoment as SecondMoment
from optim.plan.placement import plan_blocks as plan_blocks
from optim.plan.rules import Rule as Rule
