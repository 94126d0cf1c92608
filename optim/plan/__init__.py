"""From a model to its block plan: its query, key, MLP, … weights, and the state of each. Nothing here moves a weight or
keeps a state.
"""

from .blocks import Block as Block
from .blocks import BlockKind as BlockKind
from .blocks import BlockPlan as BlockPlan
from .blocks import FirstMoment as FirstMoment
from .blocks import SecondMoment as SecondMoment
from .groups import MatrixGroups as MatrixGroups
from .groups import matrix_groups as matrix_groups
from .modules import Heads as Heads
from .placement import plan_blocks as plan_blocks
from .role_table import Role as Role
from .role_table import register_role as register_role
from .rules import Rule as Rule
