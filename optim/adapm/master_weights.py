"""Float32 copies of weights in a narrower type: the step trains the copy, and rounds it to the weight afterwards."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

KEY = "master_weight"
"""Where a parameter's state has its copy."""


def has_master_weight(group: Mapping[str, Any], parameter: Tensor) -> bool:
    """Whether a parameter of that group is trained by a copy."""
    return bool(group["master_weights"]) and parameter.dtype.itemsize < torch.float32.itemsize


class MasterWeights:
    """The copies of one optimizer's parameters, kept in its state.

    Weights that somebody else changes between two steps (a loaded checkpoint, a tied initialization) are followed: an
    element that is no longer its copy rounded is taken over.
    """

    def __init__(self) -> None:
        self._versions: dict[Tensor, int] = {}
        """Of parameters as `write_back` left them: torch counts what changes them."""

    def trained_weight(self, group: Mapping[str, Any], parameter: Tensor, state: dict[str, Tensor]) -> Tensor:
        """What a step is to move: the parameter's copy, made when it is first asked for, or else the parameter."""
        if not has_master_weight(group, parameter):
            state.pop(KEY, None)
            return parameter
        if KEY not in state:
            state[KEY] = parameter.detach().to(torch.float32)
        elif self._versions.get(parameter) != parameter._version:
            master = state[KEY]
            master.copy_(torch.where(master.to(parameter.dtype) == parameter, master, parameter.to(torch.float32)))
        return state[KEY]

    def write_back(self, groups: Iterable[Mapping[str, Any]], state: Mapping[Tensor, Mapping[str, Tensor]]) -> None:
        """Round every copy to its parameter, after a step."""
        for group in groups:
            for parameter in group["params"]:
                if parameter.grad is not None and KEY in state.get(parameter, {}):
                    parameter.copy_(state[parameter][KEY])
                    self._versions[parameter] = parameter._version
