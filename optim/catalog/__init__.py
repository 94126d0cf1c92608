"""The catalog: every optimizer that the bench can build, as a table of frozen entries, and those of installed packages.

Nothing here but `factories.py` imports torch, so that specifications can be validated and served by a small, fast
process. `optim/builder.py` turns an entry into a `torch.optim.Optimizer`.
"""

from .lookup import VARIABLE as VARIABLE
from .lookup import entries as entries
from .lookup import entry as entry
from .lookup import find as find
from .lookup import knows as knows
from .lookup import names as names
from .records import Claim as Claim
from .records import Need as Need
from .records import OptimizerEntry as OptimizerEntry
from .records import Option as Option
from .records import Scalar as Scalar
from .table import CATALOG as CATALOG
