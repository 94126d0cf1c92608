"""What pages with panels share: their cards, and the form that adds or changes one and leads to another address."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, Self
from urllib.parse import parse_qsl, urlencode

from fastapi import Request
from fastapi.responses import RedirectResponse

from dashboards.figures.compare import X_TITLES
from dashboards.figures.panels import METRICS, MOST_SMOOTHING, Panel, edit_panels
from dashboards.view_state import MOST_PANELS


class PanelView(Protocol):
    """The view of a page, as its address says it."""

    @property
    def panels(self) -> tuple[str, ...]:
        """The words of its panels."""
        ...

    def query(self) -> str:
        """The query of its address, `?` included."""
        ...

    def replace(self, *, panels: tuple[str, ...]) -> Self:
        """The same view with other panels."""
        ...


@dataclass(frozen=True, kw_only=True)
class PanelCard:
    """A panel on its page."""

    place: int
    panel: Panel
    title: str
    figure: str
    """Address of its figure."""
    enlarge: str
    remove: str


@dataclass(frozen=True, kw_only=True)
class Panels:
    """All panels of a page."""

    path: str
    cards: tuple[PanelCard, ...]
    kept: tuple[tuple[str, str], ...]
    """The rest of the view, which a form sends along."""
    fields: tuple[str, ...]
    """By which runs can be averaged."""
    fresh: Panel
    """What the form of a further one begins with."""
    metrics = METRICS
    axes = X_TITLES
    most = MOST_PANELS
    most_smoothing = MOST_SMOOTHING


def page_panels(path: str, view: PanelView, figures: str, fields: tuple[str, ...], fresh: Panel) -> Panels:
    """Those of the page at `path`; `figures` is the address of their figure, with what it needs besides."""
    panels = [Panel.parse(word) for word in view.panels]

    def with_panels(changed: Sequence[Panel]) -> str:
        return f"{path}{view.replace(panels=tuple(each.word() for each in changed)).query()}#panels"

    cards = (
        PanelCard(
            place=place,
            panel=panel,
            title=METRICS[panel.metric],
            figure=f"{figures}{'&' if '?' in figures else '?'}{urlencode({'panel': panel.word()})}",
            enlarge=with_panels([*panels[:place], panel.enlarge(), *panels[place + 1 :]]),
            remove=with_panels([*panels[:place], *panels[place + 1 :]]),
        )
        for place, panel in enumerate(panels)
    )
    return Panels(
        path=path,
        cards=tuple(cards),
        kept=tuple(parse_qsl(view.query()[1:], keep_blank_values=True)),
        fields=fields,
        fresh=fresh,
    )


def edited_address(path: str, view: PanelView, request: Request) -> RedirectResponse | None:
    """Where a form of a panel leads; None where none was sent."""
    form = dict(request.query_params.multi_items())
    if "edit" not in form:
        return None
    changed = edit_panels([Panel.parse(word) for word in view.panels], form)
    query = view.replace(panels=tuple(each.word() for each in changed)).query()
    return RedirectResponse(f"{path}{query}#panels", status_code=303)
