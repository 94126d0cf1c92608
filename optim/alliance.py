"""`Alliance`: several optimizers behind one, each with its own parameters: Muon for matrices, AdamW for the rest."""

from collections.abc import Callable, Sequence
from typing import Any, overload

import torch


class Alliance(torch.optim.Optimizer):
    """One optimizer to the outside: the members' groups in a row, one state, one `state_dict`.

    Args:
        members: Fresh optimizers with different parameters. They belong to the alliance from now on.
    """

    members: Sequence[torch.optim.Optimizer]

    def __init__(self, members: Sequence[torch.optim.Optimizer]) -> None:
        self.members = ()
        super().__init__([group for member in members for group in member.param_groups], {})
        self.members = tuple(members)
        self._share()

    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Let every member take its step; return the closure's loss, if there is a closure."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for member in self.members:
            member.step()
        return loss

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load what `state_dict` gave."""
        super().load_state_dict(state_dict)
        self._share()

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "members": self.members}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._share()

    def _share(self) -> None:
        """Let the members work on the alliance's own groups and state."""
        begin = 0
        for member in self.members:
            end = begin + len(member.param_groups)
            member.state, member.param_groups = self.state, self.param_groups[begin:end]
            begin = end
