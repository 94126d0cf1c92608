"""`/runs`: every run of every experiment, external ones marked; the whole view stands in its address.

/runs?q=FILTER&columns=…&sort=-val_loss&group=candidate&after=CURSOR
/runs.csv?…          the same columns of all runs that the filter finds, as a file
"""

from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, Response, StreamingResponse

from dashboards.files.publication import run_table_csv
from dashboards.render import page, refused_page
from dashboards.text.words import field_title, field_value
from orchestrator.run_table.fields import (
    DEFAULT_COLUMNS,
    DOCUMENTS,
    NAMED_FIELDS,
    FilterError,
    RunGroup,
    TableRow,
)
from orchestrator.run_table.query import TableQuery, group_filter, read_query
from orchestrator.store import run_table
from orchestrator.store.run_table import RunTable

ROWS_SHOWN = 100
LONGEST_TEXT = 2_000
LONGEST_NAME = 40
"""Characters of an unknown parameter that are repeated."""
MOST_NAMED = 8
PARAMETERS = ("q", "columns", "sort", "group", "after")
GROUPINGS = (("", "every run"), ("experiment model steps_total candidate lr", "means over seeds"))
"""The groups that the page offers as links, with their names; others are typed."""


@dataclass(frozen=True, kw_only=True)
class TableView:
    """The view of the page, as its address says."""

    q: str = ""
    columns: str = ""
    sort: str = ""
    group: str = ""
    after: str = ""
    unknown: tuple[str, ...] = ()
    """Parameters that there are none of: a filter among them must not vanish."""

    @classmethod
    def parse(cls, request: Request) -> "TableView":
        """Read the query of a URL."""
        parameters = request.query_params
        unknown = tuple(name for name in parameters if name not in PARAMETERS)
        return cls(**{name: parameters.get(name, "").strip()[:LONGEST_TEXT] for name in PARAMETERS}, unknown=unknown)

    def query(self, **changes: Any) -> str:
        """Return the query of a URL for this view with these changes, `?` included."""
        view = replace(self, **changes)
        return "?" + urlencode({name: value for name in PARAMETERS if (value := getattr(view, name))})

    def table_query(self) -> TableQuery:
        """Return the question to the table. Raises `FilterError`, also for parameters that nothing reads."""
        if self.unknown:
            names = ", ".join(repr(name[:LONGEST_NAME]) for name in self.unknown[:MOST_NAMED])
            raise FilterError(f"there is no parameter {names}; there are {', '.join(PARAMETERS)} (q is the filter)")
        columns = [name for name in self.columns.replace(",", " ").split() if name]
        return read_query(columns=columns, where=self.q, sort=self.sort, group=self.group, after=self.after)

    def sorted_by(self, name: str) -> str:
        """Return the address of the same sorted by that field, turned round where it is already; from the first page
        on."""
        return self.query(sort=f"-{name}" if self.sort == name else name, after="")

    def narrowed_to(self, condition: str) -> str:
        """Return the address of one group of it, without groups."""
        return self.query(q=f"({self.q}) and {condition}" if self.q else condition, group="", after="")


def all_runs_pages(table: RunTable) -> APIRouter:
    """Return the page and its file."""
    router = APIRouter(include_in_schema=False)

    @router.get("/runs")
    def runs(request: Request) -> HTMLResponse:
        view, fault, following = TableView.parse(request), "", ""
        table_rows: tuple[TableRow, ...] = ()
        groups: tuple[RunGroup, ...] = ()
        query = read_query()
        try:
            query = view.table_query()
            if query.group:
                groups = table.groups(query)
            else:
                table_rows = table.page(replace(query, limit=ROWS_SHOWN + 1))
        except FilterError as error:
            fault = str(error)
        if len(table_rows) > ROWS_SHOWN:
            table_rows = table_rows[:ROWS_SHOWN]
            following = view.query(after=table_rows[-1].cursor())
        fields = query.group
        return page(
            "runs/all_runs.html",
            status=422 if fault else 200,
            view=view,
            asked=query,
            fault=fault,
            rows=table_rows,
            groups=[(group, view.narrowed_to(group_filter(fields, group))) for group in groups] if fields else (),
            most_groups=run_table.MOST_GROUPS,
            following=following,
            named=tuple(NAMED_FIELDS),
            documents=DOCUMENTS,
            default_columns=" ".join(DEFAULT_COLUMNS),
            groupings=[(view.query(group=group, after=""), text, view.group == group) for group, text in GROUPINGS],
            field_title=field_title,
            field_value=field_value,
        )

    @router.get("/runs.csv")
    def runs_file(request: Request) -> Response:
        view = TableView.parse(request)
        try:
            query = view.table_query()
        except FilterError as error:
            return refused_page(422, "Invalid request", str(error))
        headers = {"Content-Disposition": 'attachment; filename="runs.csv"'}
        cells = (
            (row.id, str(row.is_external).lower(), row.experiment_id, *row.values) for row in table.read_all(query)
        )
        lines = run_table_csv([field.name for field in query.columns], cells)
        return StreamingResponse(lines, media_type="text/csv", headers=headers)

    return router
