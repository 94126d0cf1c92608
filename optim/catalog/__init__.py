"""The catalog: every optimizer that the bench can build, as a table of frozen entries, and those of installed packages.

Nothing here but `factories.py` imports torch, so that specifications can be validated and served by a small, fast
process. `optim/build.py` turns an entry into a `torch.optim.Optimizer`.
"""

from optim.catalog.lookup import entries as entries
from optim.catalog.lookup import entry as entry
from optim.catalog.lookup import knows as knows
from optim.catalog.lookup import names as names
from optim.catalog.records import Need as Need
from optim.catalog.records import OptimizerEntry as OptimizerEntry
from optim.catalog.records import Option as Option
from optim.catalog.records import Scalar as Scalar
from optim.catalog.table import CATALOG as CATALOG
