"""The former path of `optim.plan.rules`, which other people's code imports."""

from .plan.rules import Rule as Rule
from .plan.rules import rule_of as rule_of
