"""Any optimizer of `pytorch_optimizer` by its class's name, unchecked: this module has an attribute for each.

    build("pytorch_optimizer.Prodigy", model, lr=1.0, options={"d_coef": 0.5})

Matrices decay by a decoupled weight decay, vectors never; every other default is the library's. Nothing else is
promised of these classes: some move no weight at the first step, some keep state that a checkpoint does not hold.
"""

from collections.abc import Callable
from functools import partial
from inspect import Parameter, signature
from typing import Any

import torch
from torch import nn

from ..errors import OptionError, UnknownOptimizerError
from ..nearest import unknown
from ..plan.groups import decay_groups
from .adapters import BETAS, complete_class, library


def __getattr__(name: str) -> Callable[..., torch.optim.Optimizer]:
    """Return a factory of the class of that name."""
    if name.startswith("_"):
        raise AttributeError(name)
    return partial(_build, name)


def _build(name: str, model: nn.Module, *, lr: float, weight_decay: float, **options: Any) -> torch.optim.Optimizer:
    """Return the optimizer on every trainable parameter.

    Raises:
        UnknownOptimizerError: the library has no such class.
        OptionError: the class has no such option, or cannot be built or stepped from model, rate and options alone.
        ValueError: what the class says of an option's value.
    """
    classes = {key: value for key, value in vars(library()).items() if _is_optimizer(value)}
    if name not in classes:
        raise UnknownOptimizerError(unknown("optimizer of pytorch_optimizer", name, sorted(classes)))
    arguments = signature(classes[name]).parameters
    for position, beta in enumerate(BETAS):
        if beta in options and beta not in arguments and "betas" in arguments:
            betas = options.get("betas", arguments["betas"].default)
            options["betas"] = (*betas[:position], options.pop(beta), *betas[position + 1 :])
    named = {key for key, value in arguments.items() if value.kind is not Parameter.VAR_KEYWORD}
    if unknown_options := options.keys() - named:
        raise OptionError(f"{name} has no option {', '.join(sorted(unknown_options))}; it has: {', '.join(arguments)}")
    if "hessian_distribution" in arguments:
        raise OptionError(f"{name} needs second derivatives, which no training here computes")
    decays = "weight_decay" in arguments
    groups = decay_groups(model, weight_decay, "weight_decay" if decays else "decoupled_weight_decay")
    options |= {"weight_decouple": True} if "weight_decouple" in arguments else {}
    try:
        return complete_class(name, decay=not decays)(groups, lr=lr, **options)
    except (TypeError, KeyError) as error:
        raise OptionError(
            f"{name} cannot be built from a model, a learning rate and options alone: {error}; write an entry of your "
            f"own for it"
        ) from error


def _is_optimizer(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, torch.optim.Optimizer)
