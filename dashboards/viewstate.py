"""The state of a page's view, kept in its URL, so that a link shows what its sender saw.

Unknown values fall back to the defaults: a hand-edited link still opens.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal
from urllib.parse import urlencode

XAxis = Literal["steps", "tokens", "seconds"]
X_AXES: tuple[XAxis, ...] = ("steps", "tokens", "seconds")
Part = Literal["whole", "main", "half"]
PARTS: tuple[Part, ...] = ("whole", "main", "half")
"""From the untrained loss; after the first steep fall; the second half of the budget, where candidates part."""


@dataclass(frozen=True, kw_only=True)
class ViewState:
    """What an experiment's figures show."""

    x: XAxis = "steps"
    log: bool = False
    """Logarithmic loss axis."""
    part: Part = "main"
    """Which part of the loss curves fills the figure."""
    all_rates: bool = False
    """Every learning rate, not only each candidate's best."""
    hidden: tuple[str, ...] = ()
    """Candidates left out of the figures; tables always show all of them."""
    cell: str = ""
    """Of a scaling experiment, the size and budget that is shown; empty is the law over all of them."""

    @classmethod
    def parse(cls, query: Iterable[tuple[str, str]]) -> "ViewState":
        """Read the query of a URL."""
        pairs = list(query)
        given = dict(pairs)
        return cls(
            x=next((axis for axis in X_AXES if axis == given.get("x")), "steps"),
            log=given.get("log") == "1",
            part=next((part for part in PARTS if part == given.get("part")), "main"),
            all_rates=given.get("rates") == "all",
            hidden=tuple(sorted({value for key, value in pairs if key == "hide"})),
            cell=given.get("cell", ""),
        )

    def query(self) -> str:
        """The query of a URL with this state, `?` included; `?` alone for the defaults, so that a link clears it."""
        pairs: list[tuple[str, str]] = [("cell", self.cell)] if self.cell else []
        pairs += [("x", self.x)] if self.x != "steps" else []
        pairs += [("part", self.part)] if self.part != "main" else []
        pairs += [("log", "1")] if self.log else []
        pairs += [("rates", "all")] if self.all_rates else []
        return "?" + urlencode(pairs + [("hide", name) for name in self.hidden])

    def with_x(self, axis: XAxis) -> "ViewState":
        """The same view over another x axis."""
        return replace(self, x=axis)

    def with_part(self, part: Part) -> "ViewState":
        """The same view of another part of the curves."""
        return replace(self, part=part)

    def toggled(self, name: Literal["log", "all_rates"]) -> "ViewState":
        """The same view with one switch turned."""
        if name == "log":
            return replace(self, log=not self.log)
        return replace(self, all_rates=not self.all_rates)

    def toggled_candidate(self, name: str) -> "ViewState":
        """The same view with one candidate hidden, or shown again."""
        return replace(self, hidden=tuple(sorted(set(self.hidden) ^ {name})))
