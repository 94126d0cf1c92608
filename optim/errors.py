"""The errors of `optim`: one root, a class for each kind of fault."""


class OptimError(Exception):
    """An optimizer could not be described, planned or built."""


class UnknownOptimizerError(OptimError):
    """An optimizer name that is not in the catalog."""


class OptionError(OptimError):
    """An option is unknown, of the wrong type or out of its bounds."""


class UnplacedWeightsError(OptimError):
    """Weights of a model that no rule of the block plan fits."""


class ShardedParametersError(OptimError, ValueError):
    """Parameters are parts of matrices (FSDP, ZeRO-3, tensor parallelism), where an optimizer needs whole ones."""


class RuleError(OptimError):
    """A rule of the user's fits no block, or asks of a block what it cannot keep."""


class OwnOptimizerError(OptimError, ValueError):
    """An optimizer that the operator allows is not installed, or its entry cannot be used.

    A `ValueError` too, so that it is a fault of the specification that is being checked, and not of the service.
    """


class MissingPackageError(OptimError):
    """An optimizer of the catalog needs an extra that is not installed."""
