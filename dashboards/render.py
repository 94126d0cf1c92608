"""Templates: one Jinja2 environment that escapes everything and knows how people read numbers."""

import json
import time
from functools import cache
from typing import Any

from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined

from dashboards import assets, fit_views, formats, grouping, measured, tables, views
from dashboards.palette import style
from dashboards.visitor import may_change, visitor

FILTERS = {
    name: getattr(formats, name)
    for name in (
        "loss", "signed", "p_value", "size", "percent", "seconds", "duration", "hours", "count", "compact", "rate",
        "moment", "iso", "device_hours_title", "standing", "option_value", "short", "sentence",
    )
}  # fmt: skip


def page(template: str, *, status: int = 200, **values: Any) -> HTMLResponse:
    """A page as an answer that browsers ask for anew each time."""
    html = environment().get_template(template).render(**values)
    return HTMLResponse(html, status_code=status, headers={"Cache-Control": "no-cache"})


def missing_page(what: str) -> HTMLResponse:
    """The 404 page for people; `what` says in a sentence what was not found."""
    return page("missing.html", status=404, what=what[:1].upper() + what[1:])


def refused_page(status: int, heading: str, why: str) -> HTMLResponse:
    """The page for people in place of one that there cannot be; `why` says in a sentence what is in the way."""
    return page("missing.html", status=status, code=status, heading=heading, what=why[:1].upper() + why[1:])


@cache
def environment() -> Environment:
    """The one environment; an undefined name in a template is an error, never an empty string."""
    made = Environment(
        loader=PackageLoader("dashboards"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= FILTERS
    made.filters["ago"] = lambda then: formats.ago(then, time.time())
    made.filters["pretty_json"] = lambda value: json.dumps(value, indent=2, ensure_ascii=False)
    made.globals |= {"groupings": grouping.choices}
    made.globals |= {"view_choices": views.view_choices, "run_choices": tables.run_choices}
    made.globals |= {"asset": assets.url, "plotly": assets.PLOTLY, "views": views, "measured": measured, "style": style}
    made.globals |= {"fits": fit_views}
    made.globals |= {"visitor": visitor, "may_change": may_change}
    return made
