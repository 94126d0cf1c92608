"""The former path of `optim.plan.blocks`, which other people's code imports."""

from optim.plan.blocks import Block as Block
from optim.plan.blocks import BlockKind as BlockKind
from optim.plan.blocks import BlockPlan as BlockPlan
from optim.plan.blocks import FirstMoment as FirstMoment
from optim.plan.blocks import SecondMoment as SecondMoment
from optim.plan.blocks import Slice as Slice
