"""The table of all runs on both databases: filters as their twin, pages without gaps, groups, and hostile filters."""

import math
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.jobs import RunAction
from orchestrator.run_table.fields import FilterError, find_field
from orchestrator.run_table.filters import parse_filter
from orchestrator.run_table.query import TableQuery, group_filter, read_query
from orchestrator.store.tables import external_runs, runs
from tests.contract.conftest import Store
from tests.factories.external_runs import batch, header
from tests.factories.stores import comparison_spec
from tests.twins.run_filter import Values, fits

NAMES = ("candidate", "lr", "seed", "val_loss", "origin", "reason", "config.width", "config.kind", "metric.val_loss")
CONFIGS: tuple[dict[str, object], ...] = (
    {"width": 64},
    {"width": "64"},
    {"width": True, "kind": "A%b_\u00c4"},
    {"kind": "o'r\\"},
    {"width": [1]},
    {},
    {"kind": "a\x00b"},
)
LOSSES = (3.5, 7.0, None, -2.0, 0.0, 1e300)
VALUES = (
    "64",
    "3.5",
    "-2",
    "0",
    "null",
    "true",
    "adamw",
    "a%B_",
    "'o\\'r'",
    "\u00e4",
    '"64"',
    "'; drop table runs --'",
    "''",
)


UNREADABLE = ("{", "", "nothing", '{"width": 1e999}', "[" * 20_000)
"""Documents that no release wrote, a restored disk has them: a filter passes them over."""


def fill(store: Store) -> list[Values]:
    """Runs of both origins with odd values, and what a twin knows of them."""
    store.experiments.submit(comparison_spec(optimizers=("adamw", "lion"), seeds=range(3)))
    twin_rows: list[Values] = []
    for run, loss in zip(store.runs.page(), LOSSES, strict=True):
        reason = "It IS so" if run.seed else None
        change = sa.update(runs).where(runs.c.id == run.id).values(last_val_loss=loss, reason=reason)
        with store.database.writing() as connection:
            connection.execute(change)
        twin: dict[str, Any] = {
            "id": run.id,
            "candidate": run.candidate,
            "lr": run.lr,
            "seed": run.seed,
            "origin": "bench",
        }
        twin_rows.append({**twin, "reason": reason, "val_loss": loss, "metric.val_loss": loss})
    for number, (config, loss) in enumerate(zip(CONFIGS, (1.5, math.nan, 2.5, 3.5, 3.5, 0.0, 1.0), strict=True)):
        lr = None if number == 3 else 0.1 * number + 0.1
        begun = header(f"Muon {number}", lr=lr, seed=number, config=config)
        store.external_runs.append(f"run-{number}", batch({0: 5.0, 10: loss}, run=begun))
        odd: dict[object, object] = {True: "true"}
        if store.database.dialect == "postgresql":
            odd["a\x00b"] = "a\ufffdb"
        texts: dict[str, Any] = {
            f"config.{name}": value if isinstance(value, list) else odd.get(value, value)
            for name, value in config.items()
        }
        read = {name: value for name, value in texts.items() if not isinstance(value, list)}
        fields: dict[str, Any] = {
            "id": f"run-{number}",
            "candidate": f"Muon {number}",
            "lr": lr,
            "seed": number,
            "origin": "external",
        }
        twin_rows.append({**fields, **read, "val_loss": loss, "metric.val_loss": loss})
    return twin_rows


def conditions() -> st.SearchStrategy[str]:
    operators = st.sampled_from(("=", "!=", "<", "<=", ">", ">=", "~", "!~"))
    operands = st.one_of(st.sampled_from(VALUES), st.floats(-3, 70).map(lambda value: f"{value:.3g}"))
    return st.builds(lambda *parts: " ".join(parts), st.sampled_from(NAMES), operators, operands)


FILTERS = st.recursive(
    conditions(),
    lambda inner: st.one_of(
        inner.map(lambda condition: f"not ({condition})"),
        st.tuples(inner, st.sampled_from(("and", "OR")), inner).map(
            lambda parts: f"({parts[0]}) {parts[1]} ({parts[2]})"
        ),
    ),
    max_leaves=4,
)


def test_a_filter_finds_what_its_twin_finds_in_every_order_page_by_page(store: Store) -> None:
    twin_rows = fill(store)

    def ids(query: TableQuery, size: int = 5) -> list[str]:
        row_ids: list[str] = []
        cursor = None
        while len(row_ids) < 100:
            page_query = TableQuery(**vars(query) | {"limit": size, "after": cursor})
            rows = store.run_table.page(page_query)
            row_ids += [row.id for row in rows]
            if len(rows) < size:
                return row_ids
            cursor = rows[-1].cursor()
        return row_ids

    @settings(max_examples=60, deadline=timedelta(seconds=20), suppress_health_check=[HealthCheck.too_slow])
    @given(FILTERS, st.sampled_from(NAMES), st.booleans())
    def check(text: str, sort: str, descending: bool) -> None:
        try:
            condition = parse_filter(text)
        except FilterError:
            return  # what cannot be understood has a test of its own
        assert condition is not None
        query = read_query(where=text, sort=f"-{sort}" if descending else sort, columns=NAMES)
        run_ids = ids(query)
        assert sorted(run_ids) == sorted(str(run["id"]) for run in twin_rows if fits(run, condition)), text
        assert run_ids == ids(query, 100), "pages show each run once, in the order of one long page"
        query = read_query(where=text, group=sort)
        groups = store.run_table.groups(query)
        assert sum(group_row.runs for group_row in groups) == len(run_ids)
        for group_row in groups:
            narrowed = read_query(where=f"({text}) and {group_filter(query.group, group_row)}")
            assert len(ids(narrowed)) == group_row.runs

    check()
    for group in store.run_table.groups(read_query(group="candidate")):
        group_query = read_query(
            where=group_filter((find_field("candidate"),), group), columns=["val_loss"], limit=1000
        )
        rows = store.run_table.page(group_query)
        assert {row.is_external for row in rows} == {group.origin == "external"}, "one origin each"
        losses = [row.values[0] for row in rows if isinstance(row.values[0], float)]
        assert (group.best, group.worst) == (min(losses, default=None), max(losses, default=None))
        averaged = [loss for loss in losses if abs(loss) < 1e150]
        assert group.mean == (pytest.approx(sum(averaged) / len(averaged)) if averaged else None)
    order = [row.values[0] for row in store.run_table.page(read_query(sort="-val_loss", columns=["val_loss"]))]
    numbers = [value for value in order if isinstance(value, float)]
    assert numbers == sorted(numbers, reverse=True) and order[: len(numbers)] == numbers, "what has none comes last"
    with pytest.raises(FilterError, match="gone"):
        store.run_table.page(read_query(after="external:run-0-0"))
    with store.database.writing() as connection:
        for name, document in zip(twin_rows[6:], UNREADABLE, strict=False):
            broken = sa.update(external_runs).where(external_runs.c.id == name["id"]).values(config=document)
            connection.execute(broken)
    for text, expected in (("config.kind ~ a", {"run-6"}), ("config.width < 100", set())):
        narrowed = read_query(where=text, sort="config.width", columns=["config.kind", "config.width"])
        assert set(ids(narrowed)) == expected
    assert {"run-0", "run-1", "run-2", "run-4", "run-5"} < set(ids(read_query(where="config.width = null")))
    assert sum(group_row.runs for group_row in store.run_table.groups(read_query(group="config.kind"))) == len(
        twin_rows
    )
    (experiment,) = store.experiments.page()
    for run in store.runs.page():
        store.runs.apply(run.id, RunAction.CANCEL)
    store.experiments.delete(experiment.id)
    assert {row.is_external for row in store.run_table.page(read_query())} == {True}, "deleted ones are not shown"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("lr<", "position 4: expected a value behind <, not the end"),
        ("lr<0.01 and", "position 12: expected a field"),
        ("lrr<1", "position 1: there is no field 'lrr'; did you mean lr?"),
        ("lr<1 optimizer=a", "position 6: expected and, or, or the end"),
        ("(lr<1", "position 1: this ( is never closed"),
        ("model='a", "position 7: this quote is never closed"),
        ("lr ! 1", "position 4: '!' is not one of"),
        ("adamw", "position 6: expected an operator"),
        ("lr~1", "position 3: lr is a number"),
        ("model<1", "position 6: model is text"),
        ("lr<1e999", "position 4: 1e999 is too large"),
        ("created_at>soon", "position 12: created_at is a time"),
        ('"spec.a\\"b"=1', "position 1: 'spec.a\"b' is not a path"),
        ("(" * 30 + "lr<1" + ")" * 30, "nested deeper than 20"),
        ("not " * 30 + "lr<1", "nested deeper than 20"),
        ("x" * 1001, "1,001 characters"),
        ("key_id=1", "there is no field 'key_id'. Fields: "),
        ("model=and", "in quotes where the word is meant"),
        ("model~null", "nothing is ~ null"),
        ("model=a\x00b", "NUL"),
    ],
)
def test_a_filter_that_cannot_be_understood_says_where_and_what_to_write(text: str, fault: str) -> None:
    with pytest.raises(FilterError) as raised:
        parse_filter(text)
    assert fault in str(raised.value)


def test_a_list_with_commas_is_no_field() -> None:
    with pytest.raises(FilterError, match="is a list with commas; give each field by itself"):
        find_field("config.a,config.e,val_loss")
    assert find_field("metric.a,b").path == ("a,b",), "loops name metrics as they like"
