"""From a dataset's name to its documents."""

from collections.abc import Callable, Sequence
from typing import Final

from worker.data import catalog
from worker.data.documents import Source
from worker.data.files import OwnFiles
from worker.data.hub import HubSource
from worker.data.python_stdlib import PythonStdlib
from worker.errors import DataError

LOCAL: Final[dict[str, Callable[[], Source]]] = {"python-stdlib": PythonStdlib}
"""Sources that need nothing but this machine."""


def source_of(dataset: str, paths: Sequence[str] = (), column: str = "text") -> Source:
    """The source of a dataset; own ones are read from `paths`. Raises `DataError` where they do not fit together."""
    try:
        entry = catalog.dataset(dataset)
    except KeyError as error:
        raise DataError(f"{error.args[0]}. Choose one of them.") from error
    if catalog.dataset_kind(dataset) is not catalog.DataKind.TEXT:
        raise DataError(f"{dataset} holds {catalog.dataset_kind(dataset)}: its tasks prepare it when they first run.")
    if entry is None:
        if not paths:
            raise DataError(f"the dataset {dataset!r} is your own: say with --from which files it is made of.")
        return OwnFiles(paths, column)
    if paths:
        raise DataError(f"{dataset} has its own source. Give your files a name of their own: own/<name>.")
    return LOCAL[dataset]() if entry.hub is None else HubSource(entry.hub)
