"""An optimizer like Adam-mini that is right, one that draws by chance, and what people get wrong in such ones.

Each flaw is a class that differs from a right one in a method; most train a small model all the same. `FLAWS` says
which promise it breaks (`worker/checks/`).
"""

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from optim.catalog import Claim, OptimizerEntry, Option

Group = dict[str, Any]


class NeuronAdam(torch.optim.Optimizer):
    """Adam with one second moment for each row of a matrix."""

    draws: ClassVar[bool] = False

    def __init__(self, model: nn.Module, *, lr: float, **options: Any) -> None:
        matrices = [value for value in model.parameters() if value.requires_grad and value.ndim > 1]
        vectors = [value for value in model.parameters() if value.requires_grad and value.ndim < 2]
        decay = options.pop("weight_decay")
        groups = [
            {"params": matrices, "weight_decay": decay},
            {"params": vectors, "weight_decay": 0.0},
        ]
        if not matrices and not vectors:
            groups = []
        super().__init__(groups, {"lr": lr, **options})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for value, group in self.moving():
            self.update(value, group)
        return loss

    def moving(self) -> Iterator[tuple[Tensor, Group]]:
        for group in self.param_groups:
            for value in group["params"]:
                if value.grad is not None:
                    yield value, group

    def update(self, value: Tensor, group: Group) -> None:
        state = self.state_of(value)
        gradient = self.gradient(value, group)
        number = self.count(state, value)
        momentum = state.setdefault("momentum", torch.zeros_like(value))
        momentum.lerp_(gradient, 1 - group["beta1"])
        squares = self.squares(gradient, momentum)
        second = state.setdefault("second_moment", torch.zeros_like(squares))
        second.lerp_(squares, 1 - group["beta2"])
        first_bias, second_bias = self.biases(group, number)
        direction = (momentum / first_bias) / self.root(second / second_bias, group["eps"])
        self.decay(value, group)
        self.move(value, self.masked(direction, state, value), self.rate(group))

    def state_of(self, value: Tensor) -> Group:
        state: Group = self.state[value]
        return state

    def gradient(self, value: Tensor, group: Group) -> Tensor:
        assert value.grad is not None
        return value.grad

    def count(self, state: Group, value: Tensor) -> int:
        state["step"] = state.get("step", 0) + 1
        return int(state["step"])

    def squares(self, gradient: Tensor, momentum: Tensor) -> Tensor:
        squares = gradient.square()
        return squares.mean(dim=1, keepdim=True) if squares.ndim == 2 else squares

    def biases(self, group: Group, number: int) -> tuple[float, float]:
        return 1 - group["beta1"] ** number, 1 - group["beta2"] ** number

    def root(self, second: Tensor, eps: float) -> Tensor:
        return second.sqrt() + eps

    def rate(self, group: Group) -> float:
        return float(group["lr"])

    def decay(self, value: Tensor, group: Group) -> None:
        value.mul_(1 - self.rate(group) * group["weight_decay"])

    def masked(self, direction: Tensor, state: Group, value: Tensor) -> Tensor:
        return direction

    def move(self, value: Tensor, direction: Tensor, rate: float) -> None:
        value.add_(direction, alpha=-rate)


class UncorrectedMomentum(NeuronAdam):
    def biases(self, group: Group, number: int) -> tuple[float, float]:
        return 1.0, super().biases(group, number)[1]


class CountsSteps(NeuronAdam):
    """And not each weight's own."""

    def count(self, state: Group, value: Tensor) -> int:
        group = self.param_groups[0]
        if value is next(self.moving())[0]:
            group["counted"] = group.get("counted", 0) + 1
        return int(group["counted"])


class CoupledDecay(NeuronAdam):
    def gradient(self, value: Tensor, group: Group) -> Tensor:
        return super().gradient(value, group).add(value, alpha=group["weight_decay"])

    def decay(self, value: Tensor, group: Group) -> None:
        pass


class DecayWithoutRate(NeuronAdam):
    def decay(self, value: Tensor, group: Group) -> None:
        value.mul_(1 - 1e-3 * group["weight_decay"])


class MomentumOutsideOfState(NeuronAdam):
    def __init__(self, model: nn.Module, *, lr: float, **options: Any) -> None:
        super().__init__(model, lr=lr, **options)
        self.kept: dict[Tensor, Group] = {}

    def state_of(self, value: Tensor) -> Group:
        return self.kept.setdefault(value, {})


class StateOfEveryCopy(NeuronAdam):
    everybodys: ClassVar[dict[tuple[int, ...], Group]] = {}

    def state_of(self, value: Tensor) -> Group:
        return self.everybodys.setdefault((*value.shape, len(self.param_groups[0]["params"])), {})


class StateAtOnce(NeuronAdam):
    def __init__(self, model: nn.Module, *, lr: float, **options: Any) -> None:
        super().__init__(model, lr=lr, **options)
        for group in self.param_groups:
            for value in group["params"]:
                self.state[value]["momentum"] = torch.zeros_like(value)


class GrowingState(NeuronAdam):
    def count(self, state: Group, value: Tensor) -> int:
        number = super().count(state, value)
        state[f"norm {number}"] = value.norm()
        return number


class SquaredRate(NeuronAdam):
    def rate(self, group: Group) -> float:
        return float(group["lr"]) ** 2 * 300


class LossForgotten(NeuronAdam):
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        super().step(closure)


class NormOfEverything(NeuronAdam):
    def gradient(self, value: Tensor, group: Group) -> Tensor:
        squares = sum(
            float(parameter.grad.square().sum()) for parameter, _ in self.moving() if parameter.grad is not None
        )
        return super().gradient(value, group) / max(1.0, squares**0.5) if squares == squares else value * torch.nan


class Ascent(NeuronAdam):
    def move(self, value: Tensor, direction: Tensor, rate: float) -> None:
        value.add_(direction, alpha=rate)


class SignForgotten(NeuronAdam):
    def move(self, value: Tensor, direction: Tensor, rate: float) -> None:
        value.add_(torch.where(direction > 0, direction, 0.5 * direction), alpha=-rate)


class WithoutEps(NeuronAdam):
    def root(self, second: Tensor, eps: float) -> Tensor:
        return second.sqrt()


class EpsUnderTheRoot(NeuronAdam):
    def root(self, second: Tensor, eps: float) -> Tensor:
        return (second + eps).sqrt()


class ColumnsForRows(NeuronAdam):
    def squares(self, gradient: Tensor, momentum: Tensor) -> Tensor:
        squares = gradient.square()
        return squares.mean(dim=0, keepdim=True) if squares.ndim == 2 else squares


class OwnBeta(NeuronAdam):
    def biases(self, group: Group, number: int) -> tuple[float, float]:
        group["beta1"] = 0.9
        return super().biases(group, number)

    def gradient(self, value: Tensor, group: Group) -> Tensor:
        group["beta1"] = 0.9
        return super().gradient(value, group)


class StorageForShape(NeuronAdam):
    def move(self, value: Tensor, direction: Tensor, rate: float) -> None:
        torch.as_strided(value, (value.numel(),), (1,)).add_(direction.flatten(), alpha=-rate)


class StatesByPlace(NeuronAdam):
    """Among those that have a gradient."""

    def state_of(self, value: Tensor) -> Group:
        alike = [parameter for parameter, _ in self.moving() if parameter.shape == value.shape]
        everywhere = [param for group in self.param_groups for param in group["params"] if param.shape == value.shape]
        index = next(number for number, parameter in enumerate(alike) if parameter is value)
        return super().state_of(everywhere[index])


class MaskedAdam(NeuronAdam):
    """Moves each weight in nine of ten steps, drawn by chance."""

    draws = True

    def masked(self, direction: Tensor, state: Group, value: Tensor) -> Tensor:
        drawn = torch.rand(direction.shape, generator=self.chance(state, value))
        return direction * (drawn < 0.9).to(direction)

    def chance(self, state: Group, value: Tensor) -> torch.Generator | None:
        group = self.param_groups[0]
        everywhere = [parameter for every in self.param_groups for parameter in every["params"]]
        index = next(number for number, parameter in enumerate(everywhere) if parameter is value)
        return torch.Generator().manual_seed(group["seed"] * 1_000_003 + index * 1_009 + state["step"])


class EverybodysChance(MaskedAdam):
    def chance(self, state: Group, value: Tensor) -> torch.Generator | None:
        return None


FLAWS: dict[type[NeuronAdam], str] = {
    UncorrectedMomentum: "moves_steadily",
    CountsSteps: "starts_afresh",
    CoupledDecay: "decays_matrices_only",
    DecayWithoutRate: "obeys_a_scheduler",
    MomentumOutsideOfState: "resumes_in_float32",
    StateOfEveryCopy: "repeats_itself",
    StateAtOnce: "leaves_parameters_without_gradient",
    GrowingState: "keeps_what_meta_tensors_foretell",
    SquaredRate: "doubles_with_its_rate",
    LossForgotten: "takes_a_closure",
    NormOfEverything: "keeps_a_bad_gradient_apart",
    Ascent: "learns_a_gpt2",
    SignForgotten: "mirrors_its_steps",
    WithoutEps: "survives_zero_gradients",
    EpsUnderTheRoot: "minds_no_scale",
    ColumnsForRows: "moves_neurons_apart",
    OwnBeta: "minds_every_option",
    StorageForShape: "minds_no_storage",
    StatesByPlace: "keeps_neighbours_apart",
    EverybodysChance: "resumes_in_float32",
}
"""Each flaw, and a promise that it breaks."""


def _number(name: str, default: float) -> Option:
    return Option(name=name, kind="float", default=default, meaning=name, minimum=0.0)


def entry_of(kind: type[NeuronAdam]) -> OptimizerEntry:
    """Return the entry as the catalog would have it."""
    seed = Option(name="seed", kind="int", default=0, meaning="of the draws", minimum=0)
    steady = frozenset({Claim.STEADY, Claim.FRESH_START, Claim.NEURONS_APART})
    return OptimizerEntry(
        name=kind.__name__.lower(),
        title=kind.__name__,
        factory=f"tests.fakes.flawed_optimizers:{kind.__name__}",
        learning_rate=3e-3,
        options=(
            _number("beta1", 0.9),
            _number("beta2", 0.95),
            _number("eps", 1e-8),
            _number("weight_decay", 0.1),
            *([seed] if kind.draws else []),
        ),
        summary="",
        paper="",
        licence="",
        claims=frozenset({Claim.SCALE_FREE}) | (frozenset() if kind.draws else steady),
    )
