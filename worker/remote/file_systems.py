"""fsspec's names that `folder.py` uses: a tenth of a second, so imported with the first folder that is remote."""

from fsspec.callbacks import Callback as Callback  # type: ignore[import-untyped]  # it publishes no types
from fsspec.core import url_to_fs as url_to_fs  # type: ignore[import-untyped]  # as above
from fsspec.registry import known_implementations as known_implementations  # type: ignore[import-untyped]  # as above
