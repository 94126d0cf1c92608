"""`RunTable`: every run of every experiment in SQL: pages by keyset, filters with bound parameters, groups.

Runs of the bench and external ones lie in different tables. One query asks for the first rows of each, so that each may
use its own index, and for the first ones of both. What a page shows is read for its rows alone.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, cast

import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.elements import ColumnElement
from sqlalchemy.sql.functions import FunctionElement

from orchestrator.external_runs import USUAL_METRICS, source_kind
from orchestrator.jobs import OUTCOMES, RunStatus
from orchestrator.run_table.fields import (
    EXTERNAL,
    FieldKind,
    FilterError,
    RunField,
    RunGroup,
    TableRow,
    Value,
    find_field,
)
from orchestrator.run_table.filters import Condition, Conjunction, Disjunction, Filter, Negation
from orchestrator.run_table.query import TableQuery
from orchestrator.store.database import Database
from orchestrator.store.ids import validate_id
from orchestrator.store.tables import (
    experiments,
    external_experiments,
    external_runs,
    is_kept,
    results,
    run_specs,
    runs,
)

Expression = ColumnElement[Any]
MOST_GROUPS = 500
STREAMED_ROWS = 1_000
"""Read at once for a file of all of them."""


class _JsonNumber(FunctionElement[float]):
    """The number at a path of a document; null if there is none, or where the document cannot be read."""

    type = sa.Double()
    inherit_cache = True


class _JsonText(FunctionElement[str]):
    """The text, or the truth value as one, at a path of a document; else null."""

    type = sa.Text()
    inherit_cache = True


class _Binary(FunctionElement[str]):
    """A text that is sorted by its code points, as Python sorts it, whatever the database's language."""

    type = sa.Text()
    inherit_cache = True


def _fill(template: str, element: FunctionElement[Any], compiler: SQLCompiler, **options: Any) -> str:
    return template.format(*(compiler.process(clause, **options) for clause in element.clauses))


def _define(kind: type[FunctionElement[Any]], *, sqlite: str, postgresql: str) -> None:
    """Say what a function is in each dialect, with its arguments in braces by their place."""
    compiles(kind, "sqlite")(partial(_fill, sqlite))
    compiles(kind, "postgresql")(partial(_fill, postgresql))


# The path of a document is given twice: as SQLite writes it, and as PostgreSQL's array.
_define(
    _JsonNumber,
    sqlite="(CASE WHEN json_valid({0}) AND json_type({0}, {1}) IN ('integer', 'real') THEN json_extract({0}, {1}) END)",
    postgresql="json_number_at({0}, CAST({2} AS text[]))",  # of `tables.py`
)
_define(
    _JsonText,
    sqlite="(CASE WHEN json_valid({0}) THEN CASE json_type({0}, {1}) WHEN 'text' THEN json_extract({0}, {1}) "
    "WHEN 'true' THEN 'true' WHEN 'false' THEN 'false' END END)",
    postgresql="json_text_at({0}, CAST({2} AS text[]))",
)
_define(_Binary, sqlite="{0}", postgresql='(({0})::text COLLATE "C")')


@dataclass(frozen=True)
class _Answer:
    """A field in SQL: what of it is a number and what text; each is null if it is the other."""

    number: Expression | None = None
    text: Expression | None = None


def _json(document: Expression, *path: str) -> _Answer:
    # As SQLite writes it, and as PostgreSQL's array; both are bound, never part of the statement.
    sqlite = "$" + "".join(f'."{part}"' for part in path)
    arguments = sa.literal(sqlite), sa.literal("{" + ",".join(f'"{part}"' for part in path) + "}")
    return _Answer(_JsonNumber(document, *arguments), _JsonText(document, *arguments))


_STATE = sa.case(
    *((results.c.verdict == verdict.value, outcome.value.replace("_", " ")) for verdict, outcome in OUTCOMES.items()),
    (runs.c.status == RunStatus.SUCCEEDED, "finished"),
    else_=sa.func.replace(sa.cast(runs.c.status, sa.Text), "_", " "),
)
_OWN: Mapping[str, Expression] = {
    **{name: runs.c[name] for name in ("id", "experiment_id", "candidate", "optimizer", "model", "reason")},
    **{name: runs.c[name] for name in ("lr", "seed", "step", "steps_total", "device_seconds")},
    **{name: runs.c[name] for name in ("created_at", "started_at", "ended_at")},
    "origin": sa.literal("bench"),
    "experiment": experiments.c.name,
    "workload": sa.cast(sa.null(), sa.Text),
    "source": sa.literal("bench"),
    "state": _STATE,
    "val_loss": runs.c.last_val_loss,
    "train_loss": runs.c.last_train_loss,
    "final_val_loss": results.c.final_val_loss,
    "tokens_per_second": runs.c.tokens_per_second,
}
_OWN_DOCUMENTS = {"spec": run_specs.c.spec, "result": results.c.result}
_OWN_METRICS = {name: _OWN[name] for name in ("val_loss", "train_loss", "tokens_per_second", "final_val_loss")}
_NO_NUMBER: Expression = sa.cast(sa.null(), sa.Double)
_VAL_LOSS = sa.func.coalesce(*(_json(external_runs.c.metrics, name, "last").number for name in USUAL_METRICS))
_EXTERNAL: Mapping[str, Expression] = {
    **{name: external_runs.c[name] for name in ("id", "candidate", "workload", "source", "lr", "seed")},
    **{name: external_runs.c[name] for name in ("created_at", "started_at")},
    "origin": sa.literal("external"),
    "experiment": external_experiments.c.name,
    "experiment_id": external_experiments.c.id,
    "optimizer": cast("Expression", _json(external_runs.c.config, "optimizer").text),
    "model": cast("Expression", _json(external_runs.c.config, "model").text),
    "state": external_runs.c.state,
    "reason": sa.cast(sa.null(), sa.Text),
    "val_loss": _VAL_LOSS,
    "train_loss": cast("Expression", _json(external_runs.c.metrics, "train_loss", "last").number),
    "final_val_loss": _NO_NUMBER,
    "tokens_per_second": cast("Expression", _json(external_runs.c.metrics, "tokens_per_second", "last").number),
    **dict.fromkeys(("step", "steps_total", "device_seconds", "ended_at"), _NO_NUMBER),
}


@dataclass(frozen=True)
class _Origin:
    """The table of runs of one origin, and its fields."""

    name: Literal["bench", "external"]
    table: sa.Table
    named: Mapping[str, Expression]
    joins: tuple[tuple[sa.Table, Expression], ...]
    where: Expression

    @property
    def is_external(self) -> bool:
        """Return whether they were logged, not measured."""
        return self.name == "external"

    def answer(self, field: RunField) -> _Answer:
        """Return the field in SQL."""
        if not field.document:
            expression = self.named[field.name]
            return _Answer(text=expression) if field.kind is FieldKind.TEXT else _Answer(number=expression)
        if self.is_external and field.document in ("config", "metric"):
            metric = field.document == "metric"
            return _json(external_runs.c[field.document + "s" * metric], *field.path, *(("last",) if metric else ()))
        if not self.is_external and field.document == "metric":
            return _Answer(number=_OWN_METRICS.get(field.path[0], _NO_NUMBER))
        if not self.is_external and field.document in _OWN_DOCUMENTS:
            return _json(_OWN_DOCUMENTS[field.document], *field.path)
        return _Answer(number=_NO_NUMBER)

    def key(self, field: RunField) -> tuple[Expression, Expression]:
        """Return the field as a number and as a text, by which it is sorted."""
        answer = self.answer(field)
        number, text = answer.number, answer.text
        return _NO_NUMBER if number is None else number, _Binary(sa.null() if text is None else text)

    def select(self, columns: Sequence[Expression], *conditions: Expression) -> sa.Select[Any]:
        """Return a query over the runs; tables that neither columns nor conditions use are not joined."""
        used = {
            element.table
            for expression in (*columns, *conditions)
            for element in sa.sql.visitors.iterate(expression)
            if isinstance(element, sa.Column)
        }
        source: Any = self.table
        for table, on in self.joins:
            if table in used:
                source = source.outerjoin(table, on)
        return sa.select(*columns).select_from(source).where(self.where, *conditions)


_ORIGINS = (
    _Origin(
        "bench",
        runs,
        _OWN,
        (
            (experiments, experiments.c.number == runs.c.experiment_number),
            (run_specs, run_specs.c.run_id == runs.c.id),
            (results, results.c.run_id == runs.c.id),
        ),
        is_kept,
    ),
    _Origin(
        "external",
        external_runs,
        _EXTERNAL,
        ((external_experiments, external_experiments.c.number == external_runs.c.experiment_number),),
        sa.true(),
    ),
)


def _condition(origin: _Origin, run_filter: Filter) -> Expression:
    """Return the filter as SQL of two values: true or false, never null."""
    match run_filter:
        case Negation(part):
            return sa.not_(_condition(origin, part))
        case Conjunction(parts):
            return sa.and_(*(_condition(origin, part) for part in parts))
        case Disjunction(parts):
            return sa.or_(*(_condition(origin, part) for part in parts))
        case Condition():
            return _comparison(origin.answer(run_filter.field), run_filter)


def _comparison(answer: _Answer, condition: Condition) -> Expression:
    if condition.text is None:
        is_missing = sa.and_(*(part.is_(None) for part in (answer.number, answer.text) if part is not None))
        return is_missing if condition.operator == "=" else sa.not_(is_missing)
    either: list[Expression] = []
    operator = condition.operator.removeprefix("!")
    if condition.number is not None and answer.number is not None and operator != "~":
        number, value = answer.number, sa.literal(condition.number, sa.Double)
        compared = {"=": number == value, "<": number < value, "<=": number <= value}
        compared |= {">": number > value, ">=": number >= value}
        either.append(sa.and_(number.is_not(None), compared[operator]))
    if answer.text is not None and operator in ("=", "~"):
        # A to Z in small letters, whatever the database's language.
        text, wanted = sa.func.lower(_Binary(answer.text)), sa.literal(condition.text, sa.Text)
        is_match = text == wanted if operator == "=" else sa.func.replace(text, wanted, "") != text
        if operator == "~" and not condition.text:
            is_match = sa.true()
        either.append(sa.and_(answer.text.is_not(None), is_match))
    matched = sa.or_(*either) if either else sa.false()
    return sa.not_(matched) if condition.operator.startswith("!") else matched


class RunTable:
    """The table of all runs of one database. Thread-safe; every method may raise `StoreError` and `FilterError`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def page(self, query: TableQuery) -> tuple[TableRow, ...]:
        """Return runs in the order that is asked for, those without a value last, equal ones by origin and id. Raises
        `FilterError` if the run that the page begins behind is gone."""
        with self._database.reading() as connection:
            return _page(connection, query)

    def read_all(self, query: TableQuery) -> Iterator[TableRow]:
        """Yield every row, from the first one, a page in memory at a time."""
        page_query = replace(query, limit=STREAMED_ROWS, after=None)
        while rows := self.page(page_query):
            yield from rows
            if len(rows) < STREAMED_ROWS:
                return
            page_query = replace(page_query, after=rows[-1].cursor())

    def groups(self, query: TableQuery) -> tuple[RunGroup, ...]:
        """Return the runs by the fields that the query groups by, the largest groups first, at most `MOST_GROUPS` of
        each origin."""
        if not query.group:
            return ()
        with self._database.reading() as connection:
            return _groups(connection, query)


def _page(connection: Connection, query: TableQuery) -> tuple[TableRow, ...]:
    sort = query.sort
    last = None if query.after is None else _key_of(connection, sort, query.after)
    # A field that is never null is sorted by its index, as long as the order does not ask whether it is.
    plain = sort.name in ("id", "candidate", "created_at") and not sort.document
    firsts = []
    for origin in _ORIGINS:
        number, text = origin.key(sort)
        identity = _Binary(origin.table.c.id)
        conditions = [] if query.where is None else [_condition(origin, query.where)]
        if last is not None:
            conditions.append(_is_after(number, text, identity, origin.is_external, last, query.descending))
        is_external = sa.literal(origin.is_external).label("is_external")
        named = number.label("number"), text.label("text"), is_external, identity.label("id")
        answer = origin.answer(sort)
        sort_keys = [key for key, part in ((number, answer.number), (text, answer.text)) if part is not None]
        order = (*_order(sort_keys, plain=plain, descending=query.descending), identity)
        firsts.append(sa.select(origin.select(named, *conditions).order_by(*order).limit(query.limit).subquery()))
    united = sa.union_all(*firsts).subquery().c
    order = (
        *_order((united.number, _Binary(united.text)), descending=query.descending),
        united.is_external,
        _Binary(united.id),
    )
    keys = connection.execute(sa.select(united.is_external, united.id).order_by(*order).limit(query.limit))
    return _rows(connection, [(bool(is_external), run_id) for is_external, run_id in keys], query.columns)


def _groups(connection: Connection, query: TableQuery) -> tuple[RunGroup, ...]:
    loss, groups = find_field("val_loss"), []
    for origin in _ORIGINS:
        answers, value = [origin.answer(field) for field in query.group], cast("Expression", origin.answer(loss).number)
        parts = [part for answer in answers for part in (answer.number, answer.text) if part is not None]
        labelled = [part.label(f"part_{index}") for index, part in enumerate(parts)]
        # PostgreSQL squares what it averages, and refuses an overflow.
        averaged = sa.case((sa.func.abs(value) < 1e150, value))
        figures = [sa.func.count().label("n"), sa.func.min(value), sa.func.avg(averaged), sa.func.max(value)]
        grouped = origin.select(
            [*labelled, *figures], *([] if query.where is None else [_condition(origin, query.where)])
        )
        for row in connection.execute(grouped.group_by(*labelled).order_by(sa.desc("n")).limit(MOST_GROUPS)):
            cells = iter(row)
            values = tuple(_value(answer, cells) for answer in answers)
            runs, best, mean, worst = cells
            groups.append(RunGroup(values=values, origin=origin.name, runs=runs, best=best, mean=mean, worst=worst))
    return tuple(sorted(groups, key=lambda group: (-group.runs, tuple(map(str, group.values)), group.origin)))


def _order(parts: Iterable[Expression], *, descending: bool, plain: bool = False) -> Iterator[Expression]:
    """Yield the order: numbers, then texts, then what has no value. `plain`: where there is always one."""
    for expression in parts:
        if not plain:
            yield expression.is_(None)
        yield expression.desc() if descending else expression.asc()


_Key = tuple[float | None, str | None, bool, str]


def _key_of(connection: Connection, sort: RunField, cursor: str) -> _Key:
    origin = _ORIGINS[cursor.startswith(EXTERNAL)]
    (number, text), run_id = origin.key(sort), validate_id(cursor.removeprefix(EXTERNAL))
    query = origin.select([number.label("number"), text.label("text")], origin.table.c.id == run_id)
    row = connection.execute(query).one_or_none()
    if row is None:
        raise FilterError("the run that this page begins behind is gone; go back to the first page")
    return row.number, row.text, origin.is_external, run_id


def _is_after(
    number: Expression, text: Expression, identity: Expression, is_external: bool, last: _Key, descending: bool
) -> Expression:
    """Return the condition of rows behind that key in the order."""
    value, word, last_is_external, last_id = last
    tie: Expression = identity > last_id if is_external == last_is_external else sa.literal(is_external)
    for expression, last_value in ((text, word), (number, value)):
        if last_value is None:
            tie = sa.and_(expression.is_(None), tie)
        else:
            further = expression < last_value if descending else expression > last_value
            tie = sa.or_(further, expression.is_(None), sa.and_(expression == last_value, tie))
    return tie


def _rows(
    connection: Connection, keys: Sequence[tuple[bool, str]], columns: Sequence[RunField]
) -> tuple[TableRow, ...]:
    rows_by_key: dict[tuple[bool, str], TableRow] = {}
    for origin in _ORIGINS:
        ids = [run_id for is_external, run_id in keys if is_external == origin.is_external]
        if not ids:
            continue
        answers = [origin.answer(field) for field in columns]
        parts = [part for answer in answers for part in (answer.number, answer.text) if part is not None]
        identity, named = origin.table.c.id, (origin.named["experiment_id"], origin.named["source"])
        selected = [identity, *named, *(part.label(f"part_{index}") for index, part in enumerate(parts))]
        for row in connection.execute(origin.select(selected, identity.in_(ids))):
            values = iter(row[3:])
            rows_by_key[origin.is_external, row[0]] = TableRow(
                id=row[0],
                source=source_kind(row[2]) if origin.is_external else "bench",
                experiment_id=row[1],
                values=tuple(_value(answer, values) for answer in answers),
            )
    return tuple(rows_by_key[key] for key in keys)


def _value(answer: _Answer, values: Iterator[Any]) -> Value:
    number = next(values) if answer.number is not None else None
    text = next(values) if answer.text is not None else None
    return cast("Value", text if number is None else number)
