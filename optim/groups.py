"""Parameter groups as `torch.optim` takes them: one list or several groups, of parameters with names or without."""

from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn
from torch.optim.optimizer import ParamsT

from optim.wrappers import plain_name

Group = dict[str, Any]


def listed(params: ParamsT) -> list[Group]:
    """The same parameters as groups whose `params` are lists, so that they can be looked at more than once."""
    if isinstance(params, Tensor):
        raise TypeError(f"the parameters to train are one tensor {tuple(params.shape)}; give a list of (name, tensor)")
    entries: list[Any] = list(params)
    if not entries:
        return []
    groups: list[Group] = entries if isinstance(entries[0], dict) else [{"params": entries}]
    return [_listed(group) for group in groups]


def names(groups: list[Group]) -> Iterator[tuple[str, Tensor]]:
    """(name, parameter) of every parameter that has a name."""
    for group in groups:
        for entry in group["params"]:
            if isinstance(entry, tuple):
                yield plain_name(entry[0]), entry[1]


def named_in(model: nn.Module, groups: list[Group]) -> list[Group]:
    """The groups with the names that their parameters have in the model.

    Raises:
        ValueError: a parameter is not the model's.
    """
    known = {id(value): name for name, value in model.named_parameters()}
    for group in groups:
        entries = [entry[1] if isinstance(entry, tuple) else entry for entry in group["params"]]
        strangers = [str(tuple(value.shape)) for value in entries if id(value) not in known]
        if strangers:
            raise ValueError(f"parameters of shape {', '.join(strangers)} are not the model's; give groups of its own")
        group["params"] = [(known[id(value)], value) for value in entries]
    return groups


def _listed(group: Group) -> Group:
    params = group["params"]
    if isinstance(params, set):
        raise TypeError("parameters of a group must be in an order that stays; give a list instead of a set")
    found = [params] if isinstance(params, Tensor) else list(params)
    # Torch takes an empty group for one without names, and refuses it beside others that have them.
    return {**group, "params": found} if found else {**group, "params": found, "param_names": []}
