"""Probes at work: they look at gradients before the optimizer's step, at momenta after it, and change neither.

    with probing.watch(step): ...one step of the loop...      hooks on the optimizer do the rest
    probing.take_observations()                               what was observed

They hang on the optimizer's own step hooks, so that the loop knows nothing of them, and count their time, so that it
can be left out of the step's.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import nn

from optim.plan.blocks import Block, BlockPlan
from optim.plan.placement import plan_blocks
from optim.state import HasPlan
from worker.probes.measures import Values, residual, sparsity, spectrum
from worker.probes.momenta import Momenta, Residues
from worker.records.result import Observation
from worker.spec.parts import Probes


class Probing:
    """The probes of one training."""

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer, probes: Probes) -> None:
        """`optimizer` trains `model`; its plan names the blocks, or one made for the model."""
        self.seconds = 0.0
        """What the probes took within the newest step."""
        self._probes, self._step, self._observed = probes, 0, list[Observation]()
        self._awaited: Literal["before", "after"] | None = None
        """The next hook of the step under watch: a `step` that is wrapped twice calls each hook twice."""
        plan = optimizer.plan if isinstance(optimizer, HasPlan) else plan_blocks(model, unknown="full")
        self._blocks = _matrices(plan)
        names = {block.parameter for block in self._blocks}
        self._by_parameter = {name: blocks for name, blocks in plan.by_parameter.items() if name in names}
        self._parameters = {name: model.get_parameter(name) for name in self._by_parameter}
        self._momenta = Momenta(optimizer, self._parameters, probes.beta1)
        self._residues = Residues(optimizer, self._parameters, self._momenta)
        self._keeps_momenta = bool({"momentum-spectrum", "residual"} & set(probes.kinds))
        optimizer.register_step_pre_hook(self._pre_step_hook)
        optimizer.register_step_post_hook(self._post_step_hook)

    @contextmanager
    def watch(self, step: int) -> Iterator[None]:
        """Within, the optimizer's step counts as `step`, from 1; steps outside are nobody's business."""
        self._step, self._awaited, self.seconds = step, "before", 0.0
        try:
            yield
        finally:
            self._awaited = None

    def take_observations(self) -> list[Observation]:
        """What was observed since the last call."""
        observed, self._observed = self._observed, []
        return observed

    def state(self) -> dict[str, Any]:
        """The moving averages, for a checkpoint."""
        return dict(self._momenta.own)

    def load_state(self, state: dict[str, Any]) -> None:
        """Go on from what `state()` gave."""
        self._momenta.own = {name: value.to(self._parameters[name].device) for name, value in state.items()}

    def _pre_step_hook(self, optimizer: torch.optim.Optimizer, arguments: Any, options: Any) -> None:
        if self._awaited != "before":
            return
        self._awaited = "after"
        with self._count_time():
            if self._keeps_momenta:
                self._momenta.take(self._by_parameter)
            if self._probes.is_due(self._step):
                self._observe_gradients()

    def _post_step_hook(self, optimizer: torch.optim.Optimizer, arguments: Any, options: Any) -> None:
        if self._awaited != "after":
            return
        self._awaited = None
        with self._count_time():
            if self._probes.is_due(self._step):
                self._observe_momenta()

    @contextmanager
    def _count_time(self) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self.seconds += time.perf_counter() - started

    @torch.no_grad()
    def _observe_gradients(self) -> None:
        if "gradient-sparsity" in self._probes.kinds:
            self._observe(
                "gradient-sparsity", {block.name: self._sparsity(block) for block in self._blocks_with_gradients()}
            )
        if "residual" in self._probes.kinds:
            for block in self._blocks_with_gradients():
                self._residues.begin(block)

    @torch.no_grad()
    def _observe_momenta(self) -> None:
        if "momentum-spectrum" in self._probes.kinds:
            found = {block.name: spectrum(self._momenta.momentum(block)) for block in self._blocks_with_gradients()}
            self._observe("momentum-spectrum", found)
        if "residual" in self._probes.kinds:
            ratio = self._probes.rank_ratio
            self._observe(
                "residual", {b.name: residual(*self._residues.residue(b, ratio)) for b in self._blocks_with_gradients()}
            )

    def _sparsity(self, block: Block) -> Values:
        gradient = self._parameters[block.parameter].grad
        assert gradient is not None
        return sparsity(block.view(gradient), self._probes.near_zero)

    def _blocks_with_gradients(self) -> Iterator[Block]:
        """The blocks that this step has a gradient for."""
        return (block for block in self._blocks if self._parameters[block.parameter].grad is not None)

    def _observe(self, probe: str, blocks: dict[str, Values]) -> None:
        self._observed.append(Observation(step=self._step, probe=probe, blocks=blocks))


def _matrices(plan: BlockPlan) -> tuple[Block, ...]:
    """The blocks that have rows, columns and singular values."""
    return tuple(block for block in plan if len(block.shape) == 2 and block.decays)
