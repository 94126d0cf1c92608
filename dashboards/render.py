"""Templates: one Jinja2 environment that escapes everything and knows how people read numbers."""

import json
import re
import time
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from typing import Any

from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined

from dashboards import assets
from dashboards.palette import style
from dashboards.text import answers, costs, formats, words
from dashboards.text.markdown import code_spans, markdown, note
from worker.words import pluralize

EMPTY_STYLE_ELEMENT = "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='"
"""SHA-256 of the empty string: Plotly adds one empty <style> element and fills it through the CSS object model, which
is all that it needs; without this hash its figures lose their cursors and hover layers."""

CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'self'",
        "script-src 'self'",
        f"style-src 'self' {EMPTY_STYLE_ELEMENT}",
        "img-src 'self' data:",
        "connect-src 'self'",
        "object-src 'none'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    )
)
"""The value of the header, for every answer that a browser may render: nothing inline, evaluated or foreign."""


@dataclass(frozen=True, kw_only=True)
class Visitor:
    """The holder of a key who signed in, as far as pages show it."""

    label: str
    may_change: bool
    key_id: str
    """The key that the visitor's submissions are charged to."""
    is_admin: bool


VISITOR: ContextVar[Visitor | None] = ContextVar("visitor", default=None)
"""The visitor of the current request; None if the service has no keys."""


ROOT_PATH: ContextVar[str] = ContextVar("root_path", default="")
"""The path below which the request that is being answered reached a proxy, without a slash at its end; mostly none."""
OUR_ADDRESSES = re.compile(r'(?<= )(href|src|srcset|action|formaction|data-(?:events|figure|plotly))="(?=/(?!/))')
"""The beginnings of attributes that a browser asks this service by; text has no `"` in a page, but as `&#34;`."""


def visitor_id() -> str | None:
    """Return the id of the visitor's key; None if the service asks for no keys."""
    visitor = VISITOR.get()
    return visitor.key_id if visitor else None


def may_administer() -> bool:
    """Return whether who looks may do what an admin may."""
    visitor = VISITOR.get()
    return visitor is None or visitor.is_admin


def may_change() -> bool:
    """Return whether who looks may cancel, pause, resume and retry."""
    visitor = VISITOR.get()
    return visitor is None or visitor.may_change


FILTERS = {
    name: getattr(formats, name)
    for name in (
        "loss", "difference", "p_value", "size", "percent", "seconds", "duration", "device_time", "count", "compact",
        "rate", "moment", "iso", "json_value", "device_time_title", "queue_position", "option_value", "short_number",
    )
}  # fmt: skip


def page(template: str, *, status: int = 200, **values: Any) -> HTMLResponse:
    """Return a page as an answer that browsers ask for anew each time."""
    html = below_root(environment().get_template(template).render(**values))
    return HTMLResponse(html, status_code=status, headers={"Cache-Control": "no-cache"})


def below_root(html: str) -> str:
    """Return the page with each address of ours below the path that the request's proxy publishes the service at."""
    root = ROOT_PATH.get()
    return OUR_ADDRESSES.sub(lambda match: match[0] + root, html) if root else html


def missing_page(sentence: str) -> HTMLResponse:
    """Return the 404 page for people; `sentence` says what was not found."""
    return page("missing.html", status=404, what=sentence[:1].upper() + sentence[1:])


def refused_page(status: int, heading: str, reason: str) -> HTMLResponse:
    """Return the page for people in place of one that there cannot be; `reason` says why, in a sentence."""
    sentence = reason[:1].upper() + reason[1:]
    return page("missing.html", status=status, code=status, heading=heading, what=sentence)


@cache
def environment() -> Environment:
    """Return the one environment; an undefined name in a template is an error, never an empty string."""
    templates = Environment(
        loader=PackageLoader("dashboards"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters |= FILTERS | {
        "sentence": formats.page_sentence,
        "markdown": markdown,
        "note": note,
        "code_spans": code_spans,
        "pluralize": pluralize,
        "age": lambda moment: formats.age(moment, time.time()),
        "pretty_json": lambda value: json.dumps(value, indent=2, ensure_ascii=False),
    }
    templates.globals |= {
        "asset": assets.url,
        "plotly": assets.PLOTLY,
        "views": words,
        "view_choices": words.view_choices,
        "measured": costs,
        "style": style,
        "answers": answers,
        "visitor": VISITOR.get,
        "may_change": may_change,
        "may_administer": may_administer,
    }
    return templates
