"""Block plans as people read them: layers of one shape are one line. Pure."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product

from worker.records.footprint import PlannedBlock

NUMBER = re.compile(r"(?<=[.:])\d+(?=\.|$)")
"""A number within the name of a block."""


@dataclass(frozen=True)
class Fold:
    """Blocks that differ in the numbers of their names only."""

    name: str
    """Their names in one: `h.0–11.mlp.c_fc.weight`."""
    blocks: tuple[PlannedBlock, ...]

    def first(self) -> PlannedBlock:
        """Return the first block, which stands for all of them."""
        return self.blocks[0]

    def title(self) -> str:
        """Return the name without `.weight`, which says nothing."""
        return self.name.replace(".weight", "")

    def shape(self) -> str:
        """Return the shape of each: `768×2304`."""
        return "×".join(map(str, self.first().shape)) or "scalar"

    def kind(self) -> str:
        """Return the role, in words."""
        return self.first().kind.replace("_", " ")

    def state_bytes(self) -> int:
        """Return the bytes of all of them together."""
        return sum(block.state_bytes for block in self.blocks)


def fold_blocks(blocks: Iterable[PlannedBlock]) -> Iterator[Fold]:
    """Fold blocks that are alike but for the numbers in their names, where these make up whole ranges."""
    alike: dict[tuple[object, ...], list[PlannedBlock]] = {}
    for block in blocks:
        moments = (block.first_moment, block.rank, block.second_moment)
        likeness = (NUMBER.sub("#", block.block), block.shape, block.slice, moments, block.state_bytes)
        alike.setdefault(likeness, []).append(block)
    for (template, *_), members in alike.items():
        yield from _folds(str(template), tuple(members))


def _folds(template: str, members: tuple[PlannedBlock, ...]) -> Iterator[Fold]:
    numbers = [tuple(int(number) for number in NUMBER.findall(block.block)) for block in members]
    columns = [sorted(set(column)) for column in zip(*numbers, strict=True)]
    if sorted(numbers) != sorted(product(*columns)):
        yield from (Fold(block.block, (block,)) for block in members)
        return
    ranges = iter([_range(column) for column in columns])
    # Only our own marks are filled in: a name cannot hold another `#`, which is not an identifier.
    yield Fold("".join(next(ranges) if letter == "#" else letter for letter in template), members)


def _range(numbers: list[int]) -> str:
    """Return `0–11`, or `0,2,4` if some are missing."""
    first, last = numbers[0], numbers[-1]
    if len(numbers) == 1:
        return str(first)
    return f"{first}–{last}" if last - first + 1 == len(numbers) else ",".join(map(str, numbers))
