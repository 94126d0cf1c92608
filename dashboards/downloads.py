"""Answers that a browser saves as a file."""

from fastapi import Response

from dashboards.publication import MEDIA_TYPES, SUFFIXES, TableFormat, publish
from orchestrator.records import Comparison


def table_file(comparison: Comparison, form: TableFormat) -> Response:
    """The comparison's table, named after the experiment's id: names that users chose never reach a header."""
    name = f"comparison-{comparison.experiment_id}.{SUFFIXES[form]}"
    return Response(
        publish(comparison, form),
        media_type=f"{MEDIA_TYPES[form]}; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )
