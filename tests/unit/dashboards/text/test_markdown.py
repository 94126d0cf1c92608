"""Notes as HTML: what they may look like, and that whatever is written, nothing else comes out."""

import sys
from collections import Counter
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboards.text.markdown import ALLOWED_ADDRESSES, code_spans, markdown, note

TAGS = {
    *("p", "br", "h2", "h3", "h4", "h5", "h6", "ul", "ol", "li", "em", "strong", "s", "code", "pre", "blockquote", "hr")
}
TABLE_TAGS = {"table", "thead", "tbody", "tr", "th", "td"}
ATTRIBUTES = {"a": {"href", "title", "rel"}, "ol": {"start"}, "code": {"class"}}


class Elements(HTMLParser):
    """Every element of a text with its attributes, and the text beside them."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(str(html))
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data}")

    def handle_decl(self, decl: str) -> None:
        raise AssertionError(f"a declaration: {decl}")

    def handle_pi(self, data: str) -> None:
        raise AssertionError(f"an instruction: {data}")


def test_a_note_has_headings_lists_links_tables_and_code() -> None:
    table = "| a | b |\n|---|:-:|\n| 1 | 2 |"
    html = markdown(f"# Second try\n* lower **rate**\n* [why](https://example.org/a?b=1&c=2)\n\n{table}\n\n`x < 1`")
    assert "<h2>Second try</h2>" in html
    assert "<li>lower <strong>rate</strong></li>" in html
    assert '<a href="https://example.org/a?b=1&amp;c=2" rel="noopener noreferrer nofollow">why</a>' in html
    assert "<td>1</td>" in html
    assert "<code>x &lt; 1</code>" in html


def test_lines_end_where_they_were_ended() -> None:
    """A note from before, in plain text, still looks as it was written."""
    assert markdown("one\ntwo") == "<p>one<br>\ntwo</p>\n"


ROWS = "|" + "a|" * 500 + "\n|" + "-|" * 500 + "\n" + "a\n" * 4_000


@pytest.mark.parametrize("text", ["[" * 2_000, "![[" * 700, "*[" * 1_000, "[a](" * 500, ROWS])
def test_a_note_costs_in_proportion_to_its_length(text: str) -> None:
    calls: Counter[str] = Counter()

    def count(_frame: object, event: str, _argument: object) -> None:
        calls[event] += 1

    markdown("read once")
    sys.setprofile(count)
    try:
        html = markdown(text)
    finally:
        sys.setprofile(None)
    assert calls["call"] < 200 * len(text)
    assert len(html) < 20 * len(text)
    assert Elements(html).text.count("a") == text.count("a")


def test_lists_lie_in_lists() -> None:
    html = markdown("\n".join("  " * depth + f"- level {depth}" for depth in range(19)))
    assert html.count("<li>level ") == 19


def test_a_long_table_is_a_table() -> None:
    html = markdown("| a | b | c | d |\n|---|---|---|---|\n" + "| 1 | 2 | 3 | 4 |\n" * 500)
    assert html.count("<tr>") == 501


PIECES = st.sampled_from(
    [
        "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "<svg/onload=alert(1)>", "<!-- ", "<a href='x'>",
        "javascript:alert(1)", "[x](javascript:alert(1))", "[x](&#106;avascript:alert(1))", "[x](JaVaScRiPt:alert(1))",
        "[x](data:text/html,<script>alert(1)</script>)", "[x](vbscript:x)", "<javascript:alert(1)>",
        "<https://example.org/\"onmouseover=alert(1)>", "![x](https://example.org/x.png)", "![x](/logout)",
        "[x]: javascript:alert(1)\n", "[x]", "[x](/a \"' onclick=alert(1) '\")", "```js\"onload=x\n",
        "|:--|\n", "| a |\n", "# ", "> ", "* ", "1. ", "`", "**", "_", "~~", "\\", "&lt;", "&#x3c;", "\n", "\n\n",
        "    ", " ", "text", "\"", "'", "\u202e",
    ]
)  # fmt: skip


@given(st.lists(PIECES | st.text(max_size=4), max_size=12).map("".join))
def test_whatever_is_written_only_harmless_elements_come_out(text: str) -> None:
    for tag, attributes in Elements(markdown(text)).found:
        assert tag in TAGS | TABLE_TAGS | {"a"}
        assert set(attributes) <= ATTRIBUTES.get(tag, set())
        if tag == "a":
            assert (attributes["href"] or "").lower().startswith(ALLOWED_ADDRESSES)
            assert attributes["rel"] == "noopener noreferrer nofollow"


@pytest.mark.parametrize("text", ["<b>bold</b>", "<script>alert(1)</script>", "a <img src=x> b"])
def test_html_is_text(text: str) -> None:
    assert Elements(markdown(text)).text.strip() == text


def test_a_note_has_code_between_its_backticks_and_nothing_else_of_html() -> None:
    assert note("tune with `extend_grid`, <b>-0.02</b>") == (
        "tune with <code>extend_grid</code>, &lt;b&gt;\N{MINUS SIGN}0.02&lt;/b&gt;"
    )
    assert note("`<script>`") == "<code>&lt;script&gt;</code>"
    assert note("one ` alone") == "one ` alone"
    assert code_spans("`a <= b`, -1 >= c") == "<code>a &lt;= b</code>, -1 &gt;= c", "as it was typed"
