"""Rules: the state that a user wants for some blocks, in place of the plan's.

    rules = [Rule("*.mlp.down_proj.weight", first_moment=FirstMoment.FULL), Rule("*.c_attn.weight:key", rank=64)]

A rule changes what it states of every block that its pattern fits; where several fit, later ones win. A rule that fits
nothing is an error.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from ..errors import RuleError
from .blocks import Block, FirstMoment, SecondMoment


@dataclass(frozen=True)
class Rule:
    """The state of the blocks that fit `pattern`; None leaves it as it is."""

    pattern: str
    """A shell pattern (`*`, `?`, `[…]`) for parameters (`*.mlp.*.weight`) or blocks (`*.c_attn.weight:key`)."""
    first_moment: FirstMoment | None = field(default=None, kw_only=True)
    second_moment: SecondMoment | None = field(default=None, kw_only=True)
    rank: int | None = field(default=None, kw_only=True)
    """Rank of a low-rank momentum, from 1 to min(m, n); it asks for `FirstMoment.LOW_RANK` where nothing else does."""

    def __post_init__(self) -> None:
        for name, kind in (("first_moment", FirstMoment), ("second_moment", SecondMoment)):
            if (moment := getattr(self, name)) is None or isinstance(moment, kind):
                continue
            if moment not in list(kind):
                raise RuleError(
                    f"the rule {self.pattern!r} has {name}={moment!r}; it must be one of {', '.join(map(str, kind))}"
                )
            object.__setattr__(self, name, kind(moment))
        if self.rank is not None and (isinstance(self.rank, bool) or not isinstance(self.rank, int)):
            raise RuleError(f"the rule {self.pattern!r} has rank={self.rank!r}; it must be a whole number from 1")
        if self.first_moment is None and self.second_moment is None and self.rank is None:
            raise RuleError(f"the rule {self.pattern!r} states nothing; give it a first_moment, second_moment or rank")
        if self.rank is not None and self.first_moment not in (None, FirstMoment.LOW_RANK):
            raise RuleError(
                f"the rule {self.pattern!r} asks for a {self.first_moment} momentum of rank {self.rank}; "
                f"only FirstMoment.LOW_RANK has a rank"
            )

    def fits(self, parameter: str, block: str) -> bool:
        """Return whether it speaks of the block of that name in that parameter."""
        return fnmatchcase(parameter, self.pattern) or fnmatchcase(block, self.pattern)


def rule_of(text: str) -> Rule:
    """Return the rule that a text states, `*.mlp.*.weight=rank:8,per:neuron`; raises `RuleError` for any other form."""
    pattern, _, wishes = text.rpartition("=")
    first: FirstMoment | None = None
    second: SecondMoment | None = None
    rank: int | None = None
    for wish in wishes.split(","):
        key, _, value = wish.strip().partition(":")
        if not value and key.replace("-", " ") in list(FirstMoment):
            first = FirstMoment(key.replace("-", " "))
        elif key == "per" and value in list(SecondMoment):
            second = SecondMoment(value)
        elif key == "rank" and value.isdecimal():
            rank = int(value)
        else:
            raise RuleError(
                f"the rule {text!r} cannot be understood at {wish!r}; write PATTERN=WHAT, WHAT being full, low-rank, "
                f"none, rank:N or per:element, per:row, per:neuron, per:head, or several with commas between"
            )
    return Rule(pattern, first_moment=first, second_moment=second, rank=rank)


AskedMoments = tuple[FirstMoment | None, SecondMoment | None, int | None]
"""First moment, second moment and rank that rules ask for; None if they leave it as it is."""


def merge_rules(rules: Sequence[Rule], parameter: str, block: str) -> AskedMoments:
    """Return all that the rules say about one block: those that fit, in order."""
    first: FirstMoment | None = None
    second: SecondMoment | None = None
    rank: int | None = None
    for rule in rules:
        if not rule.fits(parameter, block):
            continue
        if rule.rank is not None:
            first, rank = FirstMoment.LOW_RANK, rule.rank
        elif rule.first_moment is not None:
            first, rank = rule.first_moment, None
        second = rule.second_moment or second
    return first, second, rank


def check_rules(rules: Sequence[Rule], blocks: Sequence[Block]) -> None:
    """Raise `RuleError` for the rules that fit no block, and for blocks that cannot keep what they would have to."""
    for rule in rules:
        if not any(rule.fits(block.parameter, block.name) for block in blocks):
            raise RuleError(
                f"the rule {rule.pattern!r} fits no trainable block; print(plan_blocks(model)) shows their names"
            )
    if rules:
        for block in blocks:
            if (fault := _fault(block)) is not None:
                raise RuleError(f"{block.name} {block.shape} {fault}; change the rule for it")


def _fault(block: Block) -> str | None:
    """Return the reason why the block cannot have that state; None if it can."""
    if block.first_moment is FirstMoment.LOW_RANK:
        if len(block.shape) != 2:
            return "is not a matrix and has no low-rank momentum"
        if not 1 <= block.rank <= min(block.shape):
            return f"has no momentum of rank {block.rank}: it goes from 1 to {min(block.shape)}"
    if block.second_moment is not SecondMoment.ELEMENT and len(block.shape) != 2:
        return f"is not a matrix and has no second moment per {block.second_moment}"
    if block.second_moment is SecondMoment.HEAD and block.head_size == 1:
        return "is not divided into heads and has no second moment per head"
    return None
