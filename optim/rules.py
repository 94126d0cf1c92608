"""The former path of `optim.plan.rules`, which other people's code imports."""

from optim.plan.rules import Rule as Rule
from optim.plan.rules import rule_of as rule_of
