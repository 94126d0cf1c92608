"""The former path of `optim.catalog.records`, which other people's code imports."""

from .catalog.records import Need as Need
from .catalog.records import OptimizerEntry as OptimizerEntry
from .catalog.records import Option as Option
from .catalog.records import OptionKind as OptionKind
from .catalog.records import Scalar as Scalar
