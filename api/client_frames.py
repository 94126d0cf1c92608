"""What the client has for notebooks: results and points as pandas DataFrames, and watching one run to its end."""

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from io import BytesIO
from typing import TYPE_CHECKING

from api.client_values import segment
from orchestrator.jobs import TERMINAL
from orchestrator.records import RunRecord

if TYPE_CHECKING:
    from pandas import DataFrame  # type: ignore[import-untyped]


class NotebookVerbs(ABC):
    """The verbs of this file; `Client` brings what they ask the service with."""

    @abstractmethod
    def run(self, run_id: str) -> RunRecord:
        """One run with its state."""

    @abstractmethod
    def _file(self, path: str, parameters: Mapping[str, str | int | list[str] | list[int]]) -> bytes:
        """The file at a path of the service."""

    def dataframe(self, experiment_id: str) -> "DataFrame":
        """An experiment's results as a DataFrame, a row a run; columns as `adapm-bench export` writes them."""
        return _frame(self._file(f"/v1/experiments/{segment(experiment_id)}/exports/results.parquet", {}))

    def series_dataframe(self, experiment_id: str) -> "DataFrame":
        """The points of all runs of an experiment as a DataFrame, a row a point, with the run's id in `run_id`."""
        return _frame(self._file(f"/v1/experiments/{segment(experiment_id)}/exports/series.parquet", {}))

    def points_dataframe(self, run_id: str) -> "DataFrame":
        """The points of one run as a DataFrame, a row a point."""
        return _frame(self._file(f"/v1/runs/{segment(run_id)}/exports/series.parquet", {}))

    def watch_run(self, run_id: str, *, pause_seconds: float = 1.0) -> Iterator[RunRecord]:
        """Yield a run now and after every pause, until it has ended; the last one has its result, if there is any."""
        while True:
            run = self.run(run_id)
            yield run
            if run.status in TERMINAL:
                return
            time.sleep(pause_seconds)


def _frame(content: bytes) -> "DataFrame":
    try:
        import pandas
    except ImportError as error:
        raise ImportError("DataFrames need pandas, which is not installed; `pip install pandas`") from error
    found: DataFrame = pandas.read_parquet(BytesIO(content))
    return found
