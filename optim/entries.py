"""The former path of `optim.catalog.records`, which other people's code imports."""

from optim.catalog.records import Need as Need
from optim.catalog.records import OptimizerEntry as OptimizerEntry
from optim.catalog.records import Option as Option
from optim.catalog.records import OptionKind as OptionKind
from optim.catalog.records import Scalar as Scalar
