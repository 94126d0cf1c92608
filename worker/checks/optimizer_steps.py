"""Properties of an optimizer's steps, whatever it computes, and the claims that an entry may make of them.

A wrong sign, a forgotten bias correction or a mean over the wrong axis still trains a small model, and makes a large
one worse. Such faults break a symmetry: gradients are given here, and the steps of two runs that should be alike are
compared.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from optim.catalog.records import Claim, Option
from worker.checks.subject import Promise, Subject, copy_weights, list_names, require_promise
from worker.checks.tiny_models import tiny_llama

GRADIENT = 0.01
"""Standard deviation of the gradients: as large as those of a model that trains, far above any eps."""
SCALES = (0.01, 10.0)
"""Gradients a thousandfold apart. An eps of 1e-8 beside the root of a second moment hardly shows in the smaller ones,
and one under the root is their size."""
ROUNDING = 1e-3
"""Relative: steps of float32 weights of size one are known to 1e-4."""
EPS_TOLERANCE = 0.02
"""Relative, where eps beside the smallest of many gradients shows …"""
COARSE_TOLERANCE = 0.1
"""… and where they are smaller still, or products are of bfloat16."""
OPTION_STEPS = 4
UNKNOWN = "unknown"
"""The option of block plans for weights that they cannot place; the tiny models have none."""
MLP = "model.layers.0.mlp.up_proj.weight"
LATE = ("model.layers.0.self_attn.q_proj.weight", "model.layers.0.mlp.gate_proj.weight", "model.norm.weight")
"""Options that act late, one of each kind."""

Gradients = Mapping[str, Tensor]
"""Name → gradient; a weight that is missing has none."""
Steps = list[dict[str, Tensor]]
"""The changes of each step by name of the weight."""


def mirrors_its_steps(subject: Subject) -> None:
    """Mirrored weights and gradients give mirrored steps."""
    model = tiny_llama()
    gradients = _gradients(range(3))
    mirrored = tiny_llama()
    with torch.no_grad():
        for value in mirrored.parameters():
            value.neg_()
    steps = _steps(subject, mirrored, [{name: -value for name, value in gradient.items()} for gradient in gradients])
    expected = _steps(subject, model, gradients)
    _require_alike([{name: -value for name, value in step.items()} for step in steps], expected, ROUNDING)


def doubles_with_its_rate(subject: Subject) -> None:
    """Steps at twice the rate are twice as large."""
    gradients = _gradients(range(3))
    single_steps = _steps(subject, tiny_llama(), gradients)
    double_steps = _steps(replace(subject, lr=2 * subject.lr), tiny_llama(), gradients)
    doubled_steps = [{name: 2 * value for name, value in step.items()} for step in single_steps]
    _require_alike(double_steps, doubled_steps, EPS_TOLERANCE)


def minds_no_storage(subject: Subject) -> None:
    """A weight that is stored transposed is stepped like any other."""
    gradients = _gradients(range(3))
    transposed = tiny_llama()
    for value in transposed.parameters():
        if value.ndim == 2:
            value.data = value.detach().t().contiguous().t()
    _require_alike(_steps(subject, transposed, gradients), _steps(subject, tiny_llama(), gradients), ROUNDING)


def keeps_neighbours_apart(subject: Subject) -> None:
    """A weight without gradient for a step changes no other's steps."""
    gradients = _gradients(range(3))
    expected = _steps(subject, tiny_llama(), gradients)
    for name in LATE:
        first, second, third = gradients
        steps = _steps(subject, tiny_llama(), [first, *_leave_out([second], name), third])
        _require_alike(_leave_out(steps, name), _leave_out(expected, name), ROUNDING)


def minds_every_option(subject: Subject) -> None:
    """Every option changes something; one that only some devices mind is not tried."""
    tried = [option for option in subject.entry.options if option.name != UNKNOWN and not option.depends_on_device]
    idle = {option.name for option in tried if not _has_effect(subject, option)}
    require_promise(not idle, f"no value that was tried changes anything in {OPTION_STEPS} steps: {list_names(idle)}")


STEP_PROMISES: tuple[Promise, ...] = (
    mirrors_its_steps,
    doubles_with_its_rate,
    minds_no_storage,
    keeps_neighbours_apart,
    minds_every_option,
)


def moves_steadily(subject: Subject) -> None:
    """Claimed: under a constant gradient every step is the same."""
    steps = _steps(subject, tiny_llama(), _gradients([0]) * 6)
    _require_alike(steps, steps[-1:] * len(steps), ROUNDING)


def minds_no_scale(subject: Subject) -> None:
    """Claimed: gradients a thousand times as large give the same steps."""
    small, large = (
        [{name: scale * value for name, value in gradient.items()} for gradient in _gradients(range(4))]
        for scale in SCALES
    )
    _require_alike(_steps(subject, tiny_llama(), small), _steps(subject, tiny_llama(), large), COARSE_TOLERANCE)


def starts_afresh(subject: Subject) -> None:
    """Claimed: a weight whose first gradient comes late is stepped as if it came first."""
    gradients = _gradients(range(6))
    fresh = _steps(subject, tiny_llama(), gradients[3:])
    for name in LATE:
        late = _steps(subject, tiny_llama(), [*_leave_out(gradients[:3], name), *gradients[3:]])[3:]
        _require_alike(_select_weight(late, name), _select_weight(fresh, name), ROUNDING)


def moves_neurons_apart(subject: Subject) -> None:
    """Claimed: the weights of an MLP's neuron move by their own gradients alone."""
    _require_apart(subject, (MLP,), lambda gradient: gradient[3])


def moves_elements_apart(subject: Subject) -> None:
    """Claimed: each weight moves by its own gradient alone."""
    _require_apart(
        subject, [name for name, _ in tiny_llama().named_parameters()], lambda gradient: gradient.view(-1)[3]
    )


CLAIMED: Mapping[Claim, Promise] = {
    Claim.STEADY: moves_steadily,
    Claim.SCALE_FREE: minds_no_scale,
    Claim.FRESH_START: starts_afresh,
    Claim.NEURONS_APART: moves_neurons_apart,
}


def _gradients(seeds: Iterable[int]) -> list[dict[str, Tensor]]:
    """Return random gradients of a tiny Llama, one set for each seed."""
    shapes = {name: value.shape for name, value in tiny_llama().named_parameters()}
    return [
        {name: GRADIENT * torch.randn(shape, generator=random) for name, shape in shapes.items()}
        for random in (torch.Generator().manual_seed(seed) for seed in seeds)
    ]


def _steps(subject: Subject, model: nn.Module, gradients: Sequence[Gradients]) -> Steps:
    """Return the changes that the gradients make to the weights. A gradient is stored as its weight is, as autograd
    stores it."""
    optimizer = subject.build_without_decay(model)
    steps = []
    for gradient in gradients:
        old_weights = copy_weights(model)
        for name, value in model.named_parameters():
            value.grad = torch.empty_like(value).copy_(gradient[name]) if name in gradient else None
        optimizer.step()
        steps.append({name: value.detach() - old_weights[name] for name, value in model.named_parameters()})
    return steps


def _leave_out(gradients: Sequence[Gradients], name: str) -> Steps:
    return [{key: value for key, value in gradient.items() if key != name} for gradient in gradients]


def _select_weight(gradients: Sequence[Gradients], name: str) -> Steps:
    return [{name: gradient[name]} for gradient in gradients]


def _require_alike(steps: Sequence[Gradients], expected: Sequence[Gradients], tolerance: float) -> None:
    """Require that steps differ by at most that share of their size, weight by weight."""
    for number, (step, expected_step) in enumerate(zip(steps, expected, strict=True), start=1):
        distances = {name: _distance(value, expected_step[name]) for name, value in step.items()}
        differ = {name for name, distance in distances.items() if not distance <= tolerance}
        largest_distance = max(
            distances.values(), key=lambda distance: distance if distance == distance else float("inf")
        )
        require_promise(
            not differ, f"step {number} differs by {largest_distance:.0%} of its size or less: {list_names(differ)}"
        )


def _distance(tensor: Tensor, other: Tensor) -> float:
    """Return the distance relative to the second; two zeros have distance 0."""
    size, distance = float(other.norm()), float((tensor - other).norm())
    return distance if distance == 0.0 or size == 0.0 else distance / size


def _require_apart(subject: Subject, names: Sequence[str], part: Callable[[Tensor], Tensor]) -> None:
    """Require that a changed gradient of some weights changes the steps of these weights alone."""
    gradients, changed = _gradients(range(3)), _gradients(range(3))
    for gradient in changed:
        for name in names:
            part(gradient[name]).mul_(-7)
    changed_steps, expected = _steps(subject, tiny_llama(), changed), _steps(subject, tiny_llama(), gradients)
    for steps in (*changed_steps, *expected):
        for name in names:
            part(steps[name]).zero_()
    _require_alike(changed_steps, expected, ROUNDING)


def _has_effect(subject: Subject, option: Option) -> bool:
    """Return whether one of some values moves float32 or bfloat16 weights differently than the default does."""
    gradients = _gradients(range(OPTION_STEPS))
    for dtype in (torch.float32, torch.bfloat16):
        usual = _weights_after(subject, dtype, gradients, {})
        for value in _other_values(option):
            try:
                weights = _weights_after(subject, dtype, gradients, {option.name: value})
            except (ValueError, NotImplementedError):
                continue  # one that does not go with the others' defaults
            if any(not torch.equal(weights[name], usual[name]) for name in usual):
                return True
    return False


def _weights_after(
    subject: Subject, dtype: torch.dtype, gradients: Sequence[Gradients], options: Mapping[str, object]
) -> dict[str, Tensor]:
    model = tiny_llama()
    nn.Module.to(model, dtype)
    optimizer = subject.build_on(model, **options)
    for gradient in gradients:
        for name, value in model.named_parameters():
            value.grad = gradient[name].to(dtype)
        optimizer.step()
    return copy_weights(model)


def _other_values(option: Option) -> Iterator[object]:
    """Yield some allowed values besides its default."""
    default = option.default
    numbers: tuple[object, ...] = (1, 2, 3, 0, 7) if option.kind == "int" else (0.5, 0.3, 0.0, 2.0, 3.0, 1e-3)
    tried = {"bool": (True, False), "choice": option.choices}.get(option.kind, numbers)
    for value in tried:
        if value != default and option.fault(value) is None:
            yield value
