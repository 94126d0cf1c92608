"""The state of a page's view, kept in its URL, so that a link shows what its sender saw.

Unknown values fall back to the defaults: a hand-edited link still opens. Those of a filter are refused, since all rows
would pass for those that were asked for.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar
from urllib.parse import urlencode

from orchestrator.run_table.fields import FilterError

XAxis = Literal["steps", "tokens", "seconds", "hours"]
AXIS_TITLES: dict[XAxis, str] = {
    "steps": "step", "tokens": "training tokens", "seconds": "training seconds", "hours": "device-hours",
}  # fmt: skip
LONGEST_NAME = 80
LONGEST_PANEL = 200
LONGEST_NUMBER = 15
"""Digits: no page of ours sends a number of more."""
LONGEST_STATE = 40
"""Characters of an unknown state that are repeated."""
MOST_PANELS = 8
Word = TypeVar("Word", bound=str)


@dataclass(frozen=True, kw_only=True)
class ViewState:
    """The view of an experiment's page."""

    x: XAxis = "steps"
    log: bool = False
    """Logarithmic loss axis."""
    hidden: tuple[str, ...] = ()
    """Candidates left out of the figures; tables always show all of them."""
    baseline: str = ""
    """The candidate that the others are compared with; empty is the planned one."""
    cell: str = ""
    """The size and budget in view, of a scaling experiment; empty: the law over all of them."""
    all_columns: bool = False
    """The leaderboard's further columns: rank, learning rate, interval, time, lost runs, the verdict in full."""
    panels: tuple[str, ...] = ()
    """Further figures, as `dashboards/data/panels.py` reads them."""

    @classmethod
    def parse(cls, query: Iterable[tuple[str, str]]) -> "ViewState":
        """Read the query of a URL."""
        pairs = list(query)
        fields = dict(pairs)
        return cls(
            x=_choice(fields.get("x"), tuple(AXIS_TITLES), "steps"),
            hidden=tuple(sorted({value for key, value in pairs if key == "hide"})),
            cell=fields.get("cell", ""),
            baseline=fields.get("baseline", "")[:LONGEST_NAME],
            all_columns=fields.get("columns") == "all",
            panels=panel_words(pairs),
            log=fields.get("log") == "1",
        )

    def query(self) -> str:
        """Return the query of a URL with this state, `?` included; `?` alone for the defaults, so that a link clears
        it."""
        further = [("columns", "all")] * self.all_columns + [("panel", panel) for panel in self.panels]
        figures = self.figure_query()
        return figures + "&" * (bool(further) and figures != "?") + urlencode(further, safe="*")

    def figure_query(self) -> str:
        """Return the query without the parts that figures do not depend on: more columns redraw none."""
        pairs = [("cell", self.cell)] * bool(self.cell) + [("baseline", self.baseline)] * bool(self.baseline)
        pairs += [("x", self.x)] * (self.x != "steps") + [("log", "1")] * self.log
        return "?" + urlencode(pairs + [("hide", name) for name in self.hidden])

    def replace(self, **changes: Any) -> "ViewState":
        """Return the same view with other values."""
        return replace(self, **changes)

    def toggle(self, name: Literal["log", "all_columns"]) -> "ViewState":
        """Return the same view with one switch turned."""
        return self.replace(**{name: not getattr(self, name)})

    def changes_curves(self) -> bool:
        """Return whether it says how loss curves are drawn."""
        return self.replace(cell="", baseline="").figure_query() != "?"

    def toggle_candidate(self, name: str) -> "ViewState":
        """Return the same view with one candidate hidden, or shown again."""
        return replace(self, hidden=tuple(sorted(set(self.hidden) ^ {name})))


def panel_words(pairs: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Return the panels of an address, unread."""
    return tuple(value[:LONGEST_PANEL] for name, value in pairs if name == "panel")[:MOST_PANELS]


def number_of(text: str) -> int | None:
    """Return the number that a page sent; None if it is none of ours."""
    return int(text) if text.isdecimal() and len(text) <= LONGEST_NUMBER else None


def state_filter(value: str | None, states: tuple[Word, ...], default: Word) -> Word:
    """Return the state that a table is filtered by. Raises `FilterError` for an unknown state."""
    if value and value not in states:
        raise FilterError(f"there is no state {value[:LONGEST_STATE]!r}; there are {', '.join(states)}")
    return _choice(value, states, default)


def _choice(value: str | None, choices: tuple[Word, ...], default: Word) -> Word:
    return next((choice for choice in choices if choice == value), default)
