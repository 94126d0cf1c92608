"""Probes: what a training's gradients and momenta look like, block by block. Off unless the workload asks for them.

    with probing.watch(step): ...one step of the loop...      hooks on the optimizer do the rest
    probing.take_observations()                               what was observed

They look at gradients before the optimizer's step, at momenta after it, and change neither. They hang on the
optimizer's own step hooks, so that the loop knows nothing of them, and count their time, so that it can be left out of
the step's.

What they say about one matrix are pure functions, tensor in, finite numbers out; an all-zero matrix is not an error.
Singular values come from the smaller Gram matrix: an embedding of 50,257 × 768 costs one product and a 768 × 768
eigenproblem. That squares the condition number, so energies below 1e-7 of the largest are noise, which no share shows.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, Literal

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from optim.plan.blocks import Block, rank_of
from optim.plan.placement import plan_blocks
from optim.state import HasPlan
from worker.records.result import Observation
from worker.spec.parts import Probes

ENERGY_PERCENTS: Final = (1, 2, 5, 10, 20, 50)
"""Shares of the singular values whose energy is reported; the paper's figure speaks of the top 5 %."""
NEAR_ZERO: Final = 0.01
"""A row or column is near zero below this fraction of the largest one's norm."""
RANK_RATIO: Final = 0.05
BETA1: Final = 0.9
"""AdaPM's defaults, where the optimizer keeps no low rank, or no momentum."""
QUANTILES: Final = (0.05, 0.25, 0.5, 0.75, 0.95)
MOST_QUANTILE_ELEMENTS: Final = 2**20
"""Quantiles of larger matrices are taken over evenly strided elements: sorting 40 M would take seconds."""

Values = dict[str, float]


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
        self._blocks = tuple(block for block in plan if len(block.shape) == 2 and block.decays)
        names = {block.parameter for block in self._blocks}
        self._by_parameter = {name: blocks for name, blocks in plan.parameter_blocks.items() if name in names}
        self._parameters = {name: model.get_parameter(name) for name in self._by_parameter}
        self._momenta = Momenta(optimizer, self._parameters)
        self._optimizer = optimizer
        self._factors_before: dict[str, tuple[Tensor, Tensor]] = {}
        self._keeps_momenta = bool({"momentum-spectrum", "residual"} & set(probes.kinds))
        optimizer.register_step_pre_hook(self._pre_step_hook)
        optimizer.register_step_post_hook(self._post_step_hook)

    @contextmanager
    def watch(self, step: int) -> Iterator[None]:
        """Count the optimizer's step within the block as `step`, from 1; steps outside are ignored."""
        self._step, self._awaited, self.seconds = step, "before", 0.0
        try:
            yield
        finally:
            self._awaited = None

    def take_observations(self) -> list[Observation]:
        """Return the observations since the last call."""
        observed, self._observed = self._observed, []
        return observed

    def state(self) -> dict[str, Any]:
        """Return the moving averages, for a checkpoint."""
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
            sparsities = {
                block.name: sparsity(block.view(gradient)) for block, gradient in self._blocks_with_gradients()
            }
            self._observe("gradient-sparsity", sparsities)
        if "residual" in self._probes.kinds:
            for block, _ in self._blocks_with_gradients():
                if (factors := self._factors(block)) is not None:
                    self._factors_before[block.name] = (factors[0].clone(), factors[1].clone())

    @torch.no_grad()
    def _observe_momenta(self) -> None:
        if "momentum-spectrum" in self._probes.kinds:
            values_by_block = {
                block.name: spectrum(self._momenta.momentum(block)) for block, _ in self._blocks_with_gradients()
            }
            self._observe("momentum-spectrum", values_by_block)
        if "residual" in self._probes.kinds:
            values_by_block = {
                block.name: residual(*self._residue(block, gradient))
                for block, gradient in self._blocks_with_gradients()
            }
            self._observe("residual", values_by_block)

    def _residue(self, block: Block, gradient: Tensor) -> tuple[Tensor, Tensor]:
        """Return (r, m), m × n each: r is the residual that a low rank drops from a block's momentum m (r_t of AdaPM's
        assumption 1).

        Where the optimizer keeps low-rank factors (AdaPM), it is the paper's own, algorithm 1, line 6:

            r = L R - m,    m = (1 - b1) G + b1 L' R'        L', R': the factors before the step

        Of any other block it is what the best approximation of its momentum at `RANK_RATIO` leaves out.
        """
        factors, parameter = self._factors(block), self._parameters[block.parameter]
        if factors is None:
            momentum = self._momenta.momentum(block).float()
            return truncate_rank(momentum, rank_of(block.shape, RANK_RATIO)) - momentum, momentum
        groups = self._optimizer.param_groups
        beta1 = next(group["betas"][0] for group in groups if any(member is parameter for member in group["params"]))
        momentum = (1.0 - beta1) * block.view(gradient).float()
        if (old_factors := self._factors_before.pop(block.name, None)) is not None:
            momentum = momentum + beta1 * _product(*old_factors)
        return _product(*factors) - momentum, momentum

    def _factors(self, block: Block) -> tuple[Tensor, Tensor] | None:
        """Return L and R of a block; None if the optimizer keeps none, or none yet."""
        state: Mapping[str, Any] = self._optimizer.state.get(self._parameters[block.parameter], {})
        left, right = (state.get(block.key(name)) for name in ("momentum_left", "momentum_right"))
        return None if left is None or right is None else (left, right)

    def _blocks_with_gradients(self) -> Iterator[tuple[Block, Tensor]]:
        """Yield the blocks that this step has a gradient for, with their parameters' gradients."""
        for block in self._blocks:
            if (gradient := self._parameters[block.parameter].grad) is not None:
                yield block, gradient

    def _observe(self, probe: str, blocks: dict[str, Values]) -> None:
        self._observed.append(Observation(step=self._step, probe=probe, blocks=blocks))


class Momenta:
    """The momenta of some parameters of one optimizer: M = 0.9 M + 0.1 G.

    An optimizer that keeps a full first moment (`exp_avg`, of the parameter's or the block's own shape) is asked for
    it. For any other parameter a moving average is kept here, in float32: one more tensor of the parameter's size.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, parameters: Mapping[str, Tensor]) -> None:
        self._optimizer, self._parameters = optimizer, parameters
        self.own: dict[str, Tensor] = {}
        """Parameter name → moving average, where the optimizer keeps none."""

    @torch.no_grad()
    def take(self, blocks: Mapping[str, tuple[Block, ...]]) -> None:
        """Take the gradients of a step into the averages, before the optimizer's step.

        What an optimizer keeps is known after its first step; until then everything is averaged here.
        """
        for name, parameter in self._parameters.items():
            if all(self._keeps(block, parameter) for block in blocks[name]):
                self.own.pop(name, None)
            elif parameter.grad is not None:
                average = self.own.setdefault(name, torch.zeros_like(parameter, dtype=torch.float32))
                average.lerp_(parameter.grad.float(), 1.0 - BETA1)

    def momentum(self, block: Block) -> Tensor:
        """Return the momentum of a block, m × n, after the optimizer's step; not to be written to."""
        parameter = self._parameters[block.parameter]
        if not self._keeps(block, parameter):
            return block.view(self.own[block.parameter])
        tensor = _plain(self._state(block, parameter))
        return tensor if tensor.shape == block.shape else block.view(tensor)

    def _keeps(self, block: Block, parameter: Tensor) -> bool:
        state = self._state(block, parameter)
        return isinstance(state, Tensor) and state.shape in (block.shape, parameter.shape)

    def _state(self, block: Block, parameter: Tensor) -> Any:
        state: Mapping[str, object] = self._optimizer.state.get(parameter, {})
        return state.get(block.key("exp_avg"), state.get("exp_avg"))


def _plain(tensor: Any) -> Tensor:
    """Return the tensor itself, or what a quantised one stands for: no part of such can be looked at."""
    quantised: Any = tensor if is_traceable_wrapper_subclass(tensor) else None
    plain: Tensor = tensor if quantised is None else quantised.dequantize()
    return plain


def _product(left: Tensor, right: Tensor) -> Tensor:
    return left.float() @ right.float()


def sparsity(gradient: Tensor, near_zero: float = NEAR_ZERO) -> Values:
    """Return the shares of rows and columns of an m × n gradient with norms below `near_zero` of the largest; its norm.

    Rows and columns are as the parameter stores them; in a zero gradient all of them are near zero.
    """
    gradient = gradient.float()
    shares = {}
    for name, axis in (("rows_near_zero", 1), ("columns_near_zero", 0)):
        norms = torch.linalg.vector_norm(gradient, dim=axis)
        largest = norms.max()
        is_near_zero = norms < near_zero * largest if largest > 0 else torch.ones_like(norms)
        shares[name] = is_near_zero.float().mean().item()
    return {**shares, "norm": torch.linalg.vector_norm(gradient).item()}


def spectrum(momentum: Tensor) -> Values:
    """Return the share of energy (squared singular values) in the largest 1, 2, 5 … % singular values, at least one."""
    energies: Tensor = torch.linalg.eigvalsh(_gram(momentum.float())).flip(0).clamp_min(0.0)
    total = energies.sum().item()
    cumulated = energies.cumsum(0)
    return {
        f"energy_top_{percent}_percent": cumulated[rank_of(tuple(momentum.shape), percent / 100) - 1].item() / total
        if total > 0
        else 0.0
        for percent in ENERGY_PERCENTS
    }


def residual(residue: Tensor, momentum: Tensor) -> Values:
    """Return of the residue (m × n) its norm relative to the momentum's, and quantiles of its absolute elements."""
    size, norm = (torch.linalg.vector_norm(tensor.float()).item() for tensor in (residue, momentum))
    elements = residue.float().abs().flatten()
    stride = -(-elements.numel() // MOST_QUANTILE_ELEMENTS)
    quantile_values = torch.quantile(elements[::stride], torch.tensor(QUANTILES, device=elements.device))
    quantiles = {
        f"quantile_{round(100 * q)}": value for q, value in zip(QUANTILES, quantile_values.tolist(), strict=True)
    }
    return {"relative_norm": size / norm if norm > 0 else 0.0, **quantiles}


def truncate_rank(momentum: Tensor, rank: int) -> Tensor:
    """Return the best approximation of an m × n matrix of that rank, by its leading singular vectors."""
    matrix = momentum.float()
    wide = matrix.shape[0] <= matrix.shape[1]
    _, vectors = torch.linalg.eigh(_gram(matrix))
    leading = vectors[:, -rank:].to(matrix.dtype)
    approximation: Tensor = leading @ (leading.T @ matrix) if wide else (matrix @ leading) @ leading.T
    return approximation


def _gram(matrix: Tensor) -> Tensor:
    """Return the smaller of M M^T and M^T M, in float64: forming it there costs little and keeps small energies."""
    wide = matrix.shape[0] <= matrix.shape[1]
    return (matrix @ matrix.T if wide else matrix.T @ matrix).double()
