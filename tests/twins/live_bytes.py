"""The readable twin of the recorded memory: every tensor storage that an operator returns, counted while it lives."""

import weakref
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LiveBytes(TorchDispatchMode):
    """While it is on, `peak_bytes` is the most that new storages held together. It cannot see into an operator."""

    def __init__(self) -> None:
        super().__init__()
        self.live_bytes = self.peak_bytes = 0
        self._seen: dict[int, weakref.ref[torch.UntypedStorage]] = {}

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        inputs = {leaf.untyped_storage()._cdata for leaf in tree_leaves(args) if isinstance(leaf, torch.Tensor)}
        answer = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(answer):
            if isinstance(leaf, torch.Tensor) and leaf.untyped_storage()._cdata not in inputs:
                self._add(leaf.untyped_storage())
        return answer

    def _add(self, storage: torch.UntypedStorage) -> None:
        identity, size_bytes = storage._cdata, storage.nbytes()
        if identity in self._seen:
            return

        def gone(_: object) -> None:
            self.live_bytes -= size_bytes
            self._seen.pop(identity, None)

        self._seen[identity] = weakref.ref(storage, gone)
        self.live_bytes += size_bytes
        self.peak_bytes = max(self.peak_bytes, self.live_bytes)
