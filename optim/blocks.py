"""The former path of `optim.plan.blocks`, which other people's code imports."""

from .plan.blocks import Block as Block
from .plan.blocks import BlockKind as BlockKind
from .plan.blocks import BlockPlan as BlockPlan
from .plan.blocks import FirstMoment as FirstMoment
from .plan.blocks import SecondMoment as SecondMoment
from .plan.blocks import Slice as Slice
