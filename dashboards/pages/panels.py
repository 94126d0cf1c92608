"""The panels of a page: each stands in the page's address, and its form leads to another address of the same page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, Self
from urllib.parse import parse_qsl, urlencode

from fastapi import Request
from fastapi.responses import RedirectResponse

from dashboards.data.series import XColumn
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
    words: tuple[str, ...]
    """Of the address."""
    kept: tuple[tuple[str, str], ...]
    """The rest of the view, which a form sends along."""
    fields: tuple[str, ...]
    """By which runs can be averaged."""
    fresh: Panel
    """What the form of a further one begins with."""
    metrics: Mapping[str, str]
    """What can be drawn, and what it is called."""
    axes: Mapping[XColumn, str]
    most = MOST_PANELS
    most_smoothing = MOST_SMOOTHING


def page_panels(
    path: str,
    view: PanelView,
    figures: str,
    fields: tuple[str, ...],
    fresh: Panel,
    *,
    metrics: Mapping[str, str] = METRICS,
    axes: Mapping[XColumn, str] = X_TITLES,
) -> Panels:
    """Those of the page at `path`; `figures` is the address of their figure, with what it needs besides."""
    panels = [Panel.parse(word, metrics) for word in view.panels]
    panels = [one if one.x in axes else replace(one, x=next(iter(axes))) for one in panels]

    def panels_address(changed: Sequence[Panel]) -> str:
        return f"{path}{view.replace(panels=tuple(each.word() for each in changed)).query()}#panels"

    cards = (
        PanelCard(
            place=place,
            panel=panel,
            title=metrics.get(panel.metric, panel.metric),
            figure=f"{figures}{'&' if '?' in figures else '?'}{urlencode({'panel': panel.word()})}",
            enlarge=panels_address([*panels[:place], panel.enlarge(), *panels[place + 1 :]]),
            remove=panels_address([*panels[:place], *panels[place + 1 :]]),
        )
        for place, panel in enumerate(panels)
    )
    return Panels(
        path=path,
        cards=tuple(cards),
        words=view.panels,
        kept=tuple(parse_qsl(view.query()[1:], keep_blank_values=True)),
        fields=fields,
        fresh=fresh,
        metrics=metrics,
        axes=axes,
    )


def edited_address(
    path: str, view: PanelView, request: Request, metrics: Mapping[str, str] = METRICS
) -> RedirectResponse | None:
    """Where a form of a panel leads; None where none was sent."""
    form = dict(request.query_params.multi_items())
    if "edit" not in form:
        return None
    changed = edit_panels([Panel.parse(word, metrics) for word in view.panels], form, metrics)
    query = view.replace(panels=tuple(each.word() for each in changed)).query()
    return RedirectResponse(f"{path}{query}#panels", status_code=303)
