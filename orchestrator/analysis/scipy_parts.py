"""SciPy's parts (`special`, `optimize`), each loaded with the first function that is asked of it.

A client words the answers of the analysis without SciPy, and most requests to the service need no quantile, which would
cost them a fifth of a second.
"""

from typing import Any


def __getattr__(name: str) -> Any:
    import scipy

    return getattr(scipy, name)
