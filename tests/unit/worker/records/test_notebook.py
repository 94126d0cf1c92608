"""Records in notebooks: every field is there, lists are tables, and what people wrote is text."""

from worker.records.notebook import MOST_ROWS
from worker.records.result import Record, Verdict


class Inner(Record):
    """A record within another one."""

    name: str
    loss: float | None


class Outer(Record):
    """A record of records."""

    verdict: Verdict
    seeds: tuple[int, ...]
    inner: Inner
    rows: tuple[Inner, ...]


def test_a_record_is_a_table_with_a_table_for_each_list_in_it() -> None:
    rows = tuple(Inner(name=f"<b>{number}", loss=number / 3) for number in range(MOST_ROWS + 1))
    record = Outer(verdict=Verdict.DIVERGED, seeds=(1, 2), inner=Inner(name="<script>", loss=None), rows=rows)
    shown = record._repr_html_()
    assert "<td>verdict</td><td>diverged</td>" in shown and "<td>seeds</td><td>1, 2</td>" in shown
    assert "<td>inner.name</td><td>&lt;script&gt;</td>" in shown and "<td>inner.loss</td><td></td>" in shown
    assert f"<p>rows: {MOST_ROWS + 1}, the first {MOST_ROWS}</p>" in shown
    assert "<th>name</th><th>loss</th>" in shown and "<td>&lt;b&gt;2</td><td>0.666667</td>" in shown
    assert shown.count("<tr>") == 1 + 4 + 1 + MOST_ROWS and "<b>" not in shown
