"""The state of a page's view, kept in its URL, so that a link shows what its sender saw.

Unknown values fall back to the defaults: a hand-edited link still opens. Those of a filter are refused, since all rows
would pass for those that were asked for.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar, get_args
from urllib.parse import urlencode

from orchestrator.run_table.fields import FilterError

XAxis = Literal["steps", "tokens", "seconds", "hours"]
AXIS_TITLES: dict[XAxis, str] = {
    "steps": "step", "tokens": "training tokens", "seconds": "training seconds", "hours": "device-hours",
}  # fmt: skip
CurvePart = Literal["whole", "main", "half"]
PARTS: tuple[CurvePart, ...] = get_args(CurvePart)
"""The parts of a loss curve: from the untrained loss; after the first steep fall; the second half of the budget, where
candidates part."""
RowKey = Literal["rank", "name", "lr", "loss", "difference", "state", "peak", "step", "hours"]
ROW_KEYS: tuple[RowKey, ...] = get_args(RowKey)
"""The keys by which the leaderboard is sorted."""
LONGEST_NAME = 80
LONGEST_PANEL = 200
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
    part: CurvePart = "main"
    """The part of the loss curves that fills the figure."""
    all_rates: bool = False
    """Every learning rate, not only each candidate's best."""
    hidden: tuple[str, ...] = ()
    """Candidates left out of the figures; tables always show all of them."""
    baseline: str = ""
    """The candidate that the others are held against; empty is the planned one."""
    cell: str = ""
    """The size and budget in view, of a scaling experiment; empty: the law over all of them."""
    all_columns: bool = False
    """The leaderboard's further columns: rank, learning rate, interval, time, lost runs, the verdict in full."""
    sort: RowKey = "rank"
    descending: bool = False
    panels: tuple[str, ...] = ()
    """Further figures, as `dashboards/data/panels.py` reads them."""

    @classmethod
    def parse(cls, query: Iterable[tuple[str, str]]) -> "ViewState":
        """Read the query of a URL."""
        pairs = list(query)
        given = dict(pairs)
        return cls(
            x=_choice(given.get("x"), tuple(AXIS_TITLES), "steps"),
            part=_choice(given.get("part"), PARTS, "main"),
            all_rates=given.get("rates") == "all",
            hidden=tuple(sorted({value for key, value in pairs if key == "hide"})),
            cell=given.get("cell", ""),
            baseline=given.get("baseline", "")[:LONGEST_NAME],
            all_columns=given.get("columns") == "all",
            sort=_choice(given.get("sort", "").removeprefix("-"), ROW_KEYS, "rank"),
            descending=given.get("sort", "").startswith("-"),
            panels=panel_words(pairs),
            log=given.get("log") == "1",
        )

    def query(self) -> str:
        """Return the query of a URL with this state, `?` included; `?` alone for the defaults, so that a link clears
        it."""
        tables = [
            ("columns", "all" if self.all_columns else "", ""),
            ("sort", f"-{self.sort}" if self.descending else self.sort, "rank"),
        ]
        further = _other_than_default(tables) + [("panel", panel) for panel in self.panels]
        return self.figure_query() + _join_pairs(self.figure_query(), further)

    def figure_query(self) -> str:
        """Return the query without the parts that figures do not depend on: sorting a table redraws no figure."""
        pairs = _other_than_default(
            [
                ("cell", self.cell, ""),
                ("baseline", self.baseline, ""),
                ("x", self.x, "steps"),
                ("part", self.part, "main"),
            ]
        )
        pairs += [("log", "1")] if self.log else []
        pairs += [("rates", "all")] if self.all_rates else []
        return "?" + urlencode(pairs + [("hide", name) for name in self.hidden])

    def replace(self, **changes: Any) -> "ViewState":
        """Return the same view with other values."""
        return replace(self, **changes)

    def toggle(self, name: Literal["log", "all_rates", "all_columns"]) -> "ViewState":
        """Return the same view with one switch turned."""
        return self.replace(**{name: not getattr(self, name)})

    def changes_curves(self) -> bool:
        """Return whether it says how loss curves are drawn."""
        return self.replace(cell="", baseline="").figure_query() != "?"

    def toggle_candidate(self, name: str) -> "ViewState":
        """Return the same view with one candidate hidden, or shown again."""
        return replace(self, hidden=tuple(sorted(set(self.hidden) ^ {name})))

    def sort_by(self, key: RowKey) -> "ViewState":
        """Return the leaderboard by that column; by the same column once more, the other way round."""
        return self.replace(sort=key, descending=self.sort == key and not self.descending)


def panel_words(pairs: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Return the panels of an address, unread."""
    return tuple(value[:LONGEST_PANEL] for name, value in pairs if name == "panel")[:MOST_PANELS]


def state_filter(value: str | None, states: tuple[Word, ...], default: Word) -> Word:
    """Return the state that a table is narrowed to. Raises `FilterError` for one that there is none of."""
    if value and value not in states:
        raise FilterError(f"there is no state {value[:LONGEST_STATE]!r}; there are {', '.join(states)}")
    return _choice(value, states, default)


def _choice(value: str | None, choices: tuple[Word, ...], default: Word) -> Word:
    return next((choice for choice in choices if choice == value), default)


def _other_than_default(values: list[tuple[str, str, str]]) -> list[tuple[str, str]]:
    """(name, value) of what differs from its default."""
    return [(name, value) for name, value, default in values if value != default]


def _join_pairs(before: str, pairs: list[tuple[str, str]]) -> str:
    return ("&" if pairs and len(before) > 1 else "") + urlencode(pairs, safe="*")
