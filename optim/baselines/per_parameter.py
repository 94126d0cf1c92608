"""`PerParameterOptimizer`: the optimizer around a rule that updates one parameter at a time, or a batch of like ones.

The rules of this folder's own baselines (`asgd.py`, `galore.py`, `apollo.py`, `mars.py`, `muon.py`, `scale.py`,
`shampoo.py`) say which options they have, what they keep for a parameter and how one step moves it; groups, closures,
saving, loading and types are here, once, and so is torch's AdamW, which most of them leave some parameters to.
State and arithmetic are in float32, or in float64 for float64 parameters, whatever the type of the weights.

A rule for matrices sees every weight through `matrices`: outputs × inputs in the last two dimensions, however it is
stored, and experts or nothing in front of them. Its formulas are torch's batched ones, so that every expert is a matrix
of its own.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor
from torch._compile import _disable_dynamo
from torch.optim.optimizer import ParamsT

from ..adapm.devices import increment_versions
from ..closure_step import TORCH_FLAGS, ClosureStep, check_torch_flags
from ..plan.groups import as_group
from ..plan.sharding import refuse_sharded

Shapes = Mapping[str, tuple[int, ...]]
Group = Mapping[str, Any]
State = dict[str, Tensor]

_CPU_BATCH, _BATCH = 2**18, 2**24
"""Elements that a batch of several parameters has at most, on a CPU and elsewhere, so that a step's copies stay small:
AdaPM's pieces, which `adapm/devices.py` gives the reasons for."""


class Batch(NamedTuple):
    """Parameters of one group, alike in shape, type, device and number of steps, as `PerParameterOptimizer.update` has
    each of them."""

    names: list[str]
    weights: list[Tensor]
    gradients: list[Tensor]
    states: list[State]


ADAM_OPTIONS: Mapping[str, Any] = {"betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1}
"""Decay rates of Adam's moments, what is added to the root of the second, and decoupled decay."""


class PerParameterOptimizer(ClosureStep, ABC):
    """Updates each parameter by itself, from its gradient and its own state.

    Args:
        params: Named parameters, or groups of such, which may have the `group_marks` of the rule.
        lr: Learning rate.
        options: Those of the rule that are not to have their defaults. `foreach` and `fused` change nothing.

    Raises:
        TypeError: the rule has no such option.
        ValueError: the parameters have no names (give it `model.named_parameters()`, or groups of such), or one of
            `maximize`, `capturable` and `differentiable` is on.
        ShardedParametersError: parameters are sharded, now or at the first step.
    """

    option_defaults: ClassVar[Mapping[str, Any]]
    """The options of the rule, which groups may have as well."""
    group_marks: ClassVar[Mapping[str, Any]] = {}
    """The marks of parameter groups, with their defaults."""

    def __init__(self, params: ParamsT, lr: float, **options: Any) -> None:
        check_torch_flags(type(self).__name__, options)
        options = {option: value for option, value in options.items() if option not in TORCH_FLAGS}
        if unknown := options.keys() - self.option_defaults.keys():
            names = ", ".join(self.option_defaults)
            raise TypeError(f"{type(self).__name__} has no option {', '.join(sorted(unknown))}; its options: {names}")
        super().__init__(params, {"lr": lr, **self.option_defaults, **options, **self.group_marks})

    def is_adamw(self, group: Group) -> bool:
        """Return whether the group's parameters are AdamW's, and not the rule's."""
        return False

    @abstractmethod
    def state_shapes(self, parameter: Tensor, group: Group) -> Shapes:
        """Return the shapes of a parameter's state by name. All of it starts at zero."""

    def update(self, name: str, weight: Tensor, gradient: Tensor, state: State, group: Group) -> None:
        """Move `weight`, and its state, in place by one step. A rule has this, or `update_batch`.

        Args:
            name: The parameter's name in the model.
            weight: The weights in the type of arithmetic.
            gradient: Alike; not to be written to.
            state: The tensors of `state_shapes`, and `step`, counted from 1.
            group: The options of the parameter's group.
        """
        raise NotImplementedError(f"{type(self).__name__} has neither update nor update_batch")

    def update_batch(self, batch: Batch, group: Group) -> None:
        """Move like parameters by one step: one after the other, unless the rule has a way for all of them."""
        for name, weight, gradient, state in zip(*batch, strict=True):
            self.update(name, weight, gradient, state, group)

    @_disable_dynamo  # as torch's own optimizers do: it holds numbers of each step, for which all compiles anew
    def _update_all(self) -> None:
        for group in self.param_groups:
            for named in self._like_parameters(group):
                parameters = [parameter for _, parameter in named]
                compute = _compute_dtype(parameters[0])
                batch = Batch(
                    names=[name for name, _ in named],
                    weights=[parameter.to(compute) for parameter in parameters],
                    gradients=[parameter.grad.to(compute) for parameter in parameters if parameter.grad is not None],
                    states=[self.state[parameter] for parameter in parameters],
                )
                torch._foreach_add_([state["step"] for state in batch.states], 1.0)
                (_step_adamw if self.is_adamw(group) else self.update_batch)(batch, group)
                if batch.weights[0] is not parameters[0]:
                    torch._foreach_copy_(parameters, batch.weights)

    def _like_parameters(self, group: Group) -> Iterator[list[tuple[str, Tensor]]]:
        """Return (name, parameter) of those with a gradient, like ones together."""
        alike: dict[object, list[tuple[str, Tensor]]] = {}
        for name, parameter in zip(group["param_names"], group["params"], strict=True):
            if parameter.grad is None or parameter.numel() == 0:
                continue
            if parameter.grad.is_sparse:
                raise RuntimeError(f"{type(self).__name__} does not support sparse gradients, and {name} has one")
            step = float(self._state_of(name, parameter, group)["step"])
            alike.setdefault((parameter.shape, parameter.dtype, parameter.device, step), []).append((name, parameter))
        for named in alike.values():
            first = named[0][1]
            count = max(1, (_CPU_BATCH if first.is_cpu else _BATCH) // first.numel())
            yield from (named[start : start + count] for start in range(0, len(named), count))

    def allocate_state(self) -> None:
        """Allocate the state of every parameter now instead of at its first gradient; `meta` parameters included."""
        for group in self.param_groups:
            for name, parameter in zip(group["param_names"], group["params"], strict=True):
                self._state_of(name, parameter, group)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of named parameters, as `torch.optim.Optimizer` does."""
        check_torch_flags(type(self).__name__, param_group)
        super().add_param_group(as_group(param_group))
        group = self.param_groups[-1]
        try:
            if "param_names" not in group:
                raise ValueError(
                    f"{type(self).__name__} needs names: give it model.named_parameters(), not parameters()"
                )
            named = list(zip(group["param_names"], group["params"], strict=True))
            for name, parameter in named:
                if not parameter.is_floating_point():
                    raise ValueError(f"{name} is {parameter.dtype}; only real floating-point parameters are trained")
            refuse_sharded(named, type(self).__name__)
        except ValueError:
            self.param_groups.pop()
            raise

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load what `state_dict` gave; raises ValueError, before anything changes, where a shape differs."""
        saved_of = dict(self._saved_states(state_dict))
        own_groups = [dict(group) for group in self.param_groups]
        self._refuse_other_sides(state_dict["param_groups"])
        super().load_state_dict(state_dict)
        for group, own_options in zip(self.param_groups, own_groups, strict=True):
            for option, value in own_options.items():
                group.setdefault(option, value)  # an option that there was not yet when the state was saved
        # torch has cast the state to the parameter's type, which would round float32 state of bfloat16 parameters.
        for parameter, saved in saved_of.items():
            for key in saved.keys() - {"step"}:
                dtype = _compute_dtype(parameter)
                self.state[parameter][key] = saved[key].to(device=parameter.device, dtype=dtype, copy=True)

    def _refuse_other_sides(self, saved_groups: Sequence[Mapping[str, Any]]) -> None:
        """Refuse square matrices of states without `output_axis`: older ones projected the other side, and shapes do
        not show it."""
        for saved, group in zip(saved_groups, self.param_groups, strict=False):
            if group.get("projected") and "output_axis" not in saved:
                for name, parameter in zip(group["param_names"], group["params"], strict=True):
                    if parameter.ndim == 2 and parameter.shape[0] == parameter.shape[1]:
                        raise ValueError(
                            f"the state of {name} projects its square matrix on the other side; begin anew, or go on "
                            f"with the version that saved it"
                        )

    def _state_of(self, name: str, parameter: Tensor, group: Group) -> State:
        state: State = self.state[parameter]
        if not state:
            refuse_sharded([(name, parameter)], type(self).__name__)  # it may have become so since it was given
            # On the CPU, as torch's own counters: reading it must not wait for the device.
            state["step"] = torch.zeros((), dtype=torch.float32, device="cpu")
            for key, shape in self._shapes(parameter, group).items():
                state[key] = torch.zeros(shape, dtype=_compute_dtype(parameter), device=parameter.device)
        return state

    def _shapes(self, parameter: Tensor, group: Group) -> Shapes:
        return adam_shapes(parameter) if self.is_adamw(group) else self.state_shapes(parameter, group)

    def _saved_states(self, state_dict: dict[str, Any]) -> Iterator[tuple[Tensor, State]]:
        """Yield (parameter, its state in `state_dict`), checked against this optimizer's shapes."""
        for saved, group in zip(state_dict["param_groups"], self.param_groups, strict=False):
            for identity, name, parameter in zip(saved["params"], group["param_names"], group["params"], strict=False):
                state = state_dict["state"].get(identity)
                if state is None:
                    continue
                shapes = {key: tuple(value.shape) for key, value in state.items() if key != "step"}
                expected = dict(self._shapes(parameter, group))
                if shapes != expected or "step" not in state:
                    raise ValueError(
                        f"the state to load for {name} is {shapes}, but {type(self).__name__} keeps {expected}; "
                        f"build it with the model and options that saved it"
                    )
                yield parameter, state


def matrices(tensor: Tensor, group: Group) -> Tensor:
    """Return a weight of the group, or its gradient, as outputs × inputs, experts in front: a view.

    The group's `output_axis` says which of the last two dimensions counts outputs: 0 for `nn.Linear`, 1 for GPT-2's
    `Conv1D`.
    """
    return tensor.mT if group["output_axis"] == 1 else tensor


def as_wide(matrix: Tensor) -> Tensor:
    """Return a view, outputs × inputs, with the shorter side first, on which the GaLore family projects.

    Of a square matrix it is the inputs, as in the authors' code.
    """
    return matrix if matrix.shape[-2] < matrix.shape[-1] else matrix.mT


def matrix_norm(matrix: Tensor) -> Tensor:
    """Return the Frobenius norm of each matrix, as 1 × 1."""
    norm: Tensor = torch.linalg.vector_norm(matrix, dim=(-2, -1), keepdim=True)
    return norm


def descend(weight: Tensor, direction: Tensor, group: Group) -> None:
    """Update W <- W - lr (direction + weight_decay W) in place: decoupled decay, as in AdamW."""
    lr = float(group["lr"])
    weight.mul_(1.0 - lr * group["weight_decay"]).add_(direction, alpha=-lr)


def adam_direction(gradient: Tensor, state: State, group: Group) -> Tensor:
    """Update the moments and return Adam's direction m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps) (arXiv
    1412.6980)."""
    return adam_directions([gradient], [state], group)[0]


def adam_directions(gradients: list[Tensor], states: list[State], group: Group) -> tuple[Tensor, ...]:
    """Return Adam's direction for each gradient of a batch; all must have taken the same number of steps."""
    (beta1, beta2), step = group["betas"], int(states[0]["step"])
    averages, squares = ([state[key] for state in states] for key in ("exp_avg", "exp_avg_sq"))
    torch._foreach_lerp_(averages, gradients, 1.0 - beta1)
    torch._foreach_mul_(squares, beta2)
    torch._foreach_addcmul_(squares, gradients, gradients, 1.0 - beta2)
    divisors = torch._foreach_div(squares, 1.0 - beta2**step)
    torch._foreach_sqrt_(divisors)
    torch._foreach_add_(divisors, group["eps"])
    torch._foreach_mul_(divisors, 1.0 - beta1**step)
    return torch._foreach_div(averages, divisors)


def adam_debias(state: State, group: Group) -> float:
    """Return the factor of Adam's 1 - b^t terms on its direction at this step, eps apart: 2.24 at the first with b1 =
    0.9 and b2 = 0.95."""
    (beta1, beta2), step = group["betas"], int(state["step"])
    factor: float = (1.0 - beta2**step) ** 0.5 / (1.0 - beta1**step)
    return factor


def adam_shapes(parameter: Tensor) -> dict[str, tuple[int, ...]]:
    """Return the state of `adam_direction`."""
    return {"exp_avg": tuple(parameter.shape), "exp_avg_sq": tuple(parameter.shape)}


def _step_adamw(batch: Batch, group: Group) -> None:
    """Take a step of AdamW, by torch's fused kernel if the catalog's `adamw` has it."""
    averages, squares = ([state[key] for state in batch.states] for key in ("exp_avg", "exp_avg_sq"))
    # The kernel goes through memory as it lies: all four must lie alike.
    moved = (*batch.weights, *batch.gradients, *averages, *squares)
    if not all(tensor.device.type in ("cpu", "cuda") and tensor.is_contiguous() for tensor in moved):
        for weight, direction in zip(batch.weights, adam_directions(batch.gradients, batch.states, group), strict=True):
            descend(weight, direction, group)
        return
    step = torch.full((), float(batch.states[0]["step"]), device=batch.weights[0].device)
    torch._fused_adamw_(
        batch.weights,
        batch.gradients,
        averages,
        squares,
        [],
        [step] * len(averages),
        lr=float(group["lr"]),
        beta1=group["betas"][0],
        beta2=group["betas"][1],
        weight_decay=group["weight_decay"],
        eps=group["eps"],
        amsgrad=False,
        maximize=False,
    )
    increment_versions(batch.weights)


def _compute_dtype(parameter: Tensor) -> torch.dtype:
    return torch.promote_types(parameter.dtype, torch.float32)
