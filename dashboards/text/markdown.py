"""Markdown of people as HTML: CommonMark with tables, without anything that can leave the page by itself.

Raw HTML is text, an image is a link to it, and a link leads nowhere but to the web, a mail address or this service.
"""

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup, escape

from dashboards.text.formats import page_sentence

ALLOWED_ADDRESSES = ("https://", "http://", "mailto:", "/", "#")
LOWEST_HEADING = 6
MOST_CELLS = 10_000
"""The most cells of tables: missing cells are filled in, some 65,000 of them in a note of 10,000 characters."""


def markdown(text: str) -> Markup:
    """Return the HTML of a text; a line ends where it ends in the text. Tables of more than `MOST_CELLS` stay text."""
    lines = text.splitlines()
    cells = len(lines) * max((line.count("|") for line in lines), default=0)
    return Markup(_parser(cells <= MOST_CELLS).render(text))  # noqa: S704 - the parser escapes all that is not its own


def note(text: str) -> Markup:
    """Return a sentence of the service for a page, with what stands between backticks as code; everything else is
    text."""
    return code_spans(page_sentence(text))


def code_spans(text: str) -> Markup:
    """Return the same letter by letter, for a sentence that repeats what somebody typed."""
    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(text))))  # noqa: S704 - escaped before


_CODE = re.compile(r"`([^`]+)`")


@cache
def _parser(tables: bool) -> MarkdownIt:
    # Behind each `[` the text is read once a level, and this preset has 100. A list in a list takes two; what lies
    # deeper is left out.
    options = {"html": False, "linkify": False, "breaks": True, "maxNesting": 40}
    parser = MarkdownIt("js-default", options).disable("image" if tables else ["image", "table"])
    # markdown-it's own way to change it:
    parser.validateLink = lambda url: url.lower().startswith(ALLOWED_ADDRESSES)  # type: ignore[method-assign]
    parser.add_render_rule("link_open", _open_link)
    parser.add_render_rule("heading_open", _lower_heading)
    parser.add_render_rule("heading_close", _lower_heading)
    for cell in ("th_open", "td_open"):
        parser.add_render_rule(cell, _drop_style)
    return parser


def _open_link(renderer: Any, tokens: Sequence[Token], index: int, options: Any, env: Any) -> str:
    tokens[index].attrSet("rel", "noopener noreferrer nofollow")
    return str(renderer.renderToken(tokens, index, options, env))


def _drop_style(renderer: Any, tokens: Sequence[Token], index: int, options: Any, env: Any) -> str:
    """Return a column's alignment: the policy of pages forbids inline styles."""
    tokens[index].attrs.pop("style", None)
    return str(renderer.renderToken(tokens, index, options, env))


def _lower_heading(renderer: Any, tokens: Sequence[Token], index: int, options: Any, env: Any) -> str:
    """Render a heading one level lower: the first level is the page's own."""
    token = tokens[index]
    token.tag = f"h{min(int(token.tag[1]) + 1, LOWEST_HEADING)}"
    return str(renderer.renderToken(tokens, index, options, env))
