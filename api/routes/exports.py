"""Exports over REST: the results and the series of an experiment or of a run, as Parquet or CSV files."""

import tempfile
from collections.abc import Iterator
from typing import IO, Literal

from fastapi import APIRouter
from fastapi.responses import StreamingResponse

from api.routes.context import ExperimentIdPath, ExperimentsDependency, RunIdPath, RunsDependency, problems
from orchestrator.export.files import Format, write_results, write_series
from orchestrator.records import RunRecord
from orchestrator.services.runs import Runs

router = APIRouter(tags=["exports"])

Name = Literal["results.parquet", "results.csv", "series.parquet", "series.csv"]

MEDIA_TYPES = {Format.PARQUET: "application/vnd.apache.parquet", Format.CSV: "text/csv; charset=utf-8"}
PIECE_BYTES = 1 << 20

FILE = {200: {"description": "The file.", "content": {media: {} for media in MEDIA_TYPES.values()}}}


@router.get(
    "/experiments/{experiment_id}/exports/{name}",
    response_class=StreamingResponse,
    responses={**FILE, **problems(404)},  # type: ignore[dict-item]  # FastAPI's type is wider than either
)
def experiment_export(
    experiment_id: ExperimentIdPath, name: Name, experiments: ExperimentsDependency, runs: RunsDependency
) -> StreamingResponse:
    """A row for each run (`results`), or for each point of each run (`series`)."""
    experiments.get(experiment_id)  # one that does not exist is no empty file
    return _file(runs, runs.all(experiment_id), name, f"{experiment_id}-{name}")


@router.get(
    "/runs/{run_id}/exports/{name}",
    response_class=StreamingResponse,
    responses={**FILE, **problems(404)},  # type: ignore[dict-item]
)
def run_export(run_id: RunIdPath, name: Name, runs: RunsDependency) -> StreamingResponse:
    """The run's result (`results`), or a row for each of its points (`series`)."""
    return _file(runs, iter([runs.get(run_id)]), name, f"{run_id}-{name}")


def _file(source: Runs, runs: Iterator[RunRecord], name: Name, filename: str) -> StreamingResponse:
    table, _, ending = name.partition(".")
    form = Format(ending)
    # A file without a name: however the answer ends, nothing is left on the disk.
    file = tempfile.TemporaryFile()  # noqa: SIM115 - `_pieces` closes it, after the last byte was sent
    if table == "results":
        write_results(runs, file, form)
    else:
        write_series(source, runs, file, form)
    headers = {"Content-Disposition": f'attachment; filename="{filename}"', "Content-Length": str(file.tell())}
    file.seek(0)
    return StreamingResponse(_pieces(file), media_type=MEDIA_TYPES[form], headers=headers)


def _pieces(file: IO[bytes]) -> Iterator[bytes]:
    with file:
        while piece := file.read(PIECE_BYTES):
            yield piece
