"""The one door: a name, a model, a learning rate and options become a `torch.optim.Optimizer`.

optimizer = build("adapm", model, lr=6e-4, options={"rank_ratio": 0.02})
"""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from math import isfinite

import torch
from torch import nn

from . import catalog
from .errors import MissingPackageError, OptionError
from .plan.rules import Rule
from .plan.sharding import refuse_sharded

_PACKAGE = __name__.partition(".")[0]
_DISTRIBUTION = {"optim": "adapm-bench"}.get(_PACKAGE, _PACKAGE)


def build(
    name: str,
    model: nn.Module,
    *,
    lr: float,
    options: Mapping[str, object] | None = None,
    rules: Sequence[Rule] = (),
) -> torch.optim.Optimizer:
    """Build the catalog's optimizer `name` on every trainable parameter of `model`.

    Args:
        name: A name of the catalog.
        model: The model to train; it may be on `meta`.
        lr: Learning rate, at least 0 and finite.
        options: Values other than the entry's defaults.
        rules: What some blocks keep instead of what the plan says, where the optimizer has a block plan.

    Raises:
        UnknownOptimizerError: no entry has that name.
        MissingPackageError: the optimizer needs a package that is not installed.
        OptionError: names every option that is unknown or out of its bounds; or rules have no plan to change.
        RuleError: a rule fits no block, or asks of one what it cannot keep.
        UnplacedWeightsError: the optimizer needs a block plan, no rule places some weights, and `unknown` is "error".
        ShardedParametersError: the model is sharded, in a way that this optimizer cannot train.
    """
    entry = catalog.entry(name)
    overrides = dict(options or {})
    faults = [f"{option}={overrides[option]!r} {allowed}" for option, allowed in entry.faults(overrides)]
    if not (isfinite(lr) and lr >= 0.0):
        faults.insert(0, f"lr={lr!r} must be a number in [0, inf)")
    if rules and not entry.has_plan:
        faults.append("rules are for optimizers with a block plan")
    if faults:
        raise OptionError(f"{name} cannot be built: {'; '.join(faults)}")
    if not entry.is_available:
        raise MissingPackageError(
            f"{name} needs {entry.package}, which is not installed; run: pip install '{_DISTRIBUTION}[{entry.extra}]'"
        )
    # With a block plan it is AdaPM or Adam-mini, which look at each parameter themselves.
    refuse_sharded(model.named_parameters(), name, elementwise=entry.elementwise or entry.has_plan)
    rule_options = {"rules": rules} if rules else {}
    module, _, attribute = entry.factory.partition(":")
    factory: Callable[..., torch.optim.Optimizer] = getattr(import_module(module, __package__), attribute)
    return factory(model, lr=lr, **{**entry.defaults(), **overrides}, **rule_options)
