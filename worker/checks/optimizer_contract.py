"""Promises of every optimizer of the catalog: torch's own conventions, shown on tiny real models.

`adapm-bench optimizers NAME --check` and the tests of the shipped optimizers run the same list, `promises_of`.
"""

import copy
import io

import torch
from torch import Tensor, nn

from optim.catalog import entry
from optim.catalog.records import Need
from optim.state import allocated_state_bytes, state_bytes
from optim.train_eval_weights import HasModes, result_weights
from worker.checks.optimizer_steps import CLAIMED, STEP_PROMISES, moves_elements_apart
from worker.checks.subject import BrokenPromiseError, Promise, Subject, copy_weights, list_names, require_promise
from worker.checks.tiny_models import loss_of, tiny_gpt2, tiny_llama, train

STEPS = 40
IDLE_STEPS = 250
"""The number of steps after which the fourth power of a momentum that shrinks by 0.9 a step is below the smallest
number."""
LEARNT_NATS = 1.0
"""The fall of the loss in `STEPS` steps on a tiny model, which starts at about ln 64 = 4.2 nats."""


def holds_every_parameter_once(subject: Subject) -> None:
    """It is a torch.optim.Optimizer that holds every trainable parameter once."""
    model = tiny_gpt2()
    optimizer = subject.build_on(model)
    held = [id(parameter) for group in optimizer.param_groups for parameter in group["params"]]
    require_promise(
        isinstance(optimizer, torch.optim.Optimizer), f"{type(optimizer).__name__} is not a torch.optim.Optimizer"
    )
    expected = sorted(id(parameter) for parameter in model.parameters())
    require_promise(sorted(held) == expected, f"its groups hold {len(held)} parameters; the model has {len(expected)}")


def learns_a_gpt2(subject: Subject) -> None:
    """The loss of a GPT-2 goes down."""
    _require_learning(subject, tiny_gpt2())


def learns_a_llama(subject: Subject) -> None:
    """The loss of a Llama goes down."""
    _require_learning(subject, tiny_llama())


def learns_in_bfloat16(subject: Subject) -> None:
    """Weights in bfloat16 train, and stay bfloat16."""
    model = tiny_gpt2(dtype=torch.bfloat16)
    _require_learning(subject, model)
    dtypes = {value.dtype for value in model.parameters()}
    require_promise(dtypes == {torch.bfloat16}, f"the weights became {dtypes}")


def repeats_itself(subject: Subject) -> None:
    """The same run gives the same bits."""
    model, twin = tiny_gpt2(), tiny_gpt2()
    train(model, subject.build_on(model), range(5))
    train(twin, subject.build_on(twin), range(5))
    _require_same_bits(model, twin)


def resumes_in_float32(subject: Subject) -> None:
    """A resumed run gives the bits of one that never stopped."""
    _require_resumption(subject, torch.float32)


def resumes_in_bfloat16(subject: Subject) -> None:
    """A resumed run in bfloat16 gives the bits of one that never stopped."""
    _require_resumption(subject, torch.bfloat16)


def loads_a_state_twice(subject: Subject) -> None:
    """A state may be loaded into an optimizer that has loaded one, as Accelerate does."""
    model = tiny_gpt2()
    optimizer = subject.build_on(model)
    optimizer.load_state_dict(optimizer.state_dict())
    train(model, optimizer, range(2))
    saved = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
    train(model, optimizer, range(2, 4))
    expected = copy_weights(model)
    model.load_state_dict(saved[0])
    optimizer.load_state_dict(saved[1])
    train(model, optimizer, range(2, 4))
    _require_changes(model, expected, set())


def copies_deeply(subject: Subject) -> None:
    """A deep copy goes on alike, and apart."""
    model = tiny_gpt2()
    optimizer = subject.build_on(model)
    train(model, optimizer, range(3))
    twin_model, twin = copy.deepcopy((model, optimizer))
    at_copy = copy_weights(twin_model)
    train(model, optimizer, range(3, 6))
    _require_changes(twin_model, at_copy, set())
    train(twin_model, twin, range(3, 6))
    _require_same_bits(model, twin_model)


def obeys_a_scheduler(subject: Subject) -> None:
    """A scheduler's rate is the rate."""
    model = tiny_gpt2()
    optimizer = subject.build_on(model)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: float(step < 2))
    old_weights = copy_weights(model)
    for step in range(2):  # SOAP only looks at its first gradient
        train(model, optimizer, range(step, step + 1))
        schedule.step()
    _require_changes(model, old_weights, set(old_weights))
    old_weights = copy_weights(model)
    train(model, optimizer, range(2, 3))
    _require_changes(model, old_weights, set(old_weights) if subject.coasts else set())


def keeps_rates_of_groups(subject: Subject) -> None:
    """Each group has its own rate."""
    model = tiny_gpt2()
    optimizer = subject.build_on(model)
    names_of = {id(value): key for key, value in model.named_parameters()}
    for frozen_group in optimizer.param_groups:
        for group in optimizer.param_groups:
            group["lr"] = 0.0 if group is frozen_group else subject.lr
        old_weights = copy_weights(model)
        train(model, optimizer, range(2))
        moved = _changed_weights(model, old_weights) & {names_of[id(value)] for value in frozen_group["params"]}
        require_promise(subject.coasts or not moved, f"at rate 0 these moved: {list_names(moved)}")


def takes_a_closure(subject: Subject) -> None:
    """A closure is evaluated with gradients, and its loss returned."""
    model = tiny_gpt2()
    optimizer = subject.build_on(model)
    train(model, optimizer, range(1))
    old_weights = copy_weights(model)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = loss_of(model, 0)
        loss.backward()  # type: ignore[no-untyped-call]  # torch publishes no types for it
        return loss

    expected = loss_of(model, 0).item()
    returned = optimizer.step(closure)  # type: ignore[arg-type]  # torch types the loss float; its practice is a tensor
    require_promise(returned == expected, f"step(closure) returned {returned!r}; the closure's loss was {expected!r}")
    _require_changes(model, old_weights, set(old_weights))


def leaves_parameters_without_gradient(subject: Subject) -> None:
    """A parameter without gradient stays, and costs nothing."""
    model = tiny_gpt2()
    optimizer = subject.build_on(model)
    old_weights = copy_weights(model)
    optimizer.step()
    _require_changes(model, old_weights, set())
    kept_bytes = state_bytes(optimizer).total_bytes
    require_promise(kept_bytes == 0, f"it keeps {kept_bytes} bytes of state before any gradient")


def leaves_out_frozen_parameters(subject: Subject) -> None:
    """Frozen parameters are left out."""
    model = tiny_gpt2()
    model.get_parameter("transformer.wte.weight").requires_grad_(False)
    optimizer = subject.build_on(model)
    old_weights = copy_weights(model)
    train(model, optimizer, range(2))
    _require_changes(model, old_weights, set(old_weights) - {"transformer.wte.weight"})


def refuses_an_empty_model(subject: Subject) -> None:
    """A model without trainable parameters is refused as in torch."""
    try:
        subject.build_on(tiny_gpt2().requires_grad_(False))
    except ValueError as error:
        require_promise("empty parameter list" in str(error), f"it says {str(error)!r} instead of torch's sentence")
        return
    raise BrokenPromiseError("it accepted a model without a trainable parameter")


def keeps_a_bad_gradient_apart(subject: Subject) -> None:
    """A gradient that is not finite spoils its own weight visibly, and no other."""
    model = tiny_gpt2()
    optimizer = subject.build_on(model)
    train(model, optimizer, range(1))
    loss_of(model, 1).backward()  # type: ignore[no-untyped-call]  # torch publishes no types for it
    weight = model.get_parameter("transformer.h.0.mlp.c_fc.weight")
    weight.grad = torch.full_like(weight, torch.nan)
    old_weights = copy_weights(model)
    optimizer.step()
    held = [weight, *(value for value in optimizer.state[weight].values() if isinstance(value, Tensor))]
    # Lion's sign of NaN is 0: it spoils its momentum alone.
    require_promise(any(value.isnan().all() for value in held), "a gradient of NaN left no trace")
    other_parameters = {key: value for key, value in model.named_parameters() if value is not weight}
    spoilt = {key for key, value in other_parameters.items() if not value.isfinite().all()}
    require_promise(not spoilt, f"it spread to {list_names(spoilt)}")
    idle_names = set(other_parameters) - _changed_weights(model, old_weights)
    require_promise(not idle_names, f"these were not updated beside it: {list_names(idle_names)}")


def decays_matrices_only(subject: Subject) -> None:
    """Weight decay shrinks matrices, and leaves vectors alone."""
    if subject.entry.option("weight_decay") is None:
        return
    model = tiny_gpt2()
    optimizer = subject.build_on(model, weight_decay=1.0)
    old_weights = copy_weights(model)
    for _ in range(2):  # SOAP only looks at its first gradient
        for value in model.parameters():
            value.grad = torch.zeros_like(value)
        optimizer.step()
    for key, value in model.named_parameters():
        share = 1.0 if value.ndim < 2 else (value.norm() / old_weights[key].norm()).item()
        require_promise(value.ndim < 2 or 0.0 < share < 1.0, f"two steps of decay left {share:g} of {key}")
        torch.testing.assert_close(value.detach(), old_weights[key] * share)


def has_the_modes_of_its_entry(subject: Subject) -> None:
    """It has a mode for training and one for results where the catalog says so, and nowhere else."""
    model = tiny_gpt2()
    optimizer = subject.build_on(model)
    needs_modes = Need.MODES in entry(subject.name).needs
    require_promise(
        isinstance(optimizer, HasModes) is needs_modes, "its train() and eval() and its entry's `needs` disagree"
    )
    with result_weights(optimizer):  # before the first step there is one set of weights
        start = copy_weights(model)
    _require_changes(model, start, set())
    train(model, optimizer, range(STEPS // 2))
    trained = copy_weights(model)
    with result_weights(optimizer):
        _require_changes(model, trained, set(trained) if needs_modes else set())
        loss = loss_of(model, 30).item()
        require_promise(loss < 4.0, f"the weights for results have a loss of {loss:.3f}")
    for key, value in model.named_parameters():
        torch.testing.assert_close(value.detach(), trained[key])


def survives_zero_gradients(subject: Subject) -> None:
    """Zero gradients are harmless, and do not stall it."""
    model = tiny_gpt2()
    optimizer = subject.build_without_decay(model)
    for value in model.parameters():
        value.grad = torch.zeros_like(value)
    old_weights = copy_weights(model)
    optimizer.step()
    _require_changes(model, old_weights, set())
    _require_falling_loss(train(model, optimizer, range(STEPS)))


def outlives_an_idle_matrix(subject: Subject) -> None:
    """A matrix without gradient for long, such as an expert that nobody asks, stays finite and learns again."""
    torch.manual_seed(0)
    model = nn.ModuleDict({"wte": nn.Embedding(8, 16), "mlp": nn.ModuleList(_feed_forward() for _ in range(2))})
    goal = {name: value.detach() + 0.1 * torch.randn_like(value) for name, value in model.named_parameters()}
    optimizer = subject.build_without_decay(model)
    name = "mlp.1.up_proj.weight"
    idle = model.get_parameter(name)

    def step(*, idles: bool) -> None:
        for key, value in model.named_parameters():
            value.grad = value.detach() - goal[key] if not idles else None
        if idles:
            idle.grad = torch.zeros_like(idle)
        optimizer.step()

    for _ in range(5):
        step(idles=False)
    for number in range(IDLE_STEPS):
        step(idles=True)
        require_promise(bool(idle.isfinite().all()), f"after {number + 1} gradients of zero the weights are not finite")
    old_distance = (idle.detach() - goal[name]).norm().item()
    for _ in range(STEPS):
        step(idles=False)
    new_distance = (idle.detach() - goal[name]).norm().item()
    require_promise(
        new_distance < old_distance,
        f"{STEPS} gradients later it is {new_distance:.3f} from its goal; it was {old_distance:.3f} away",
    )


def _feed_forward() -> nn.Module:
    return nn.ModuleDict({"up_proj": nn.Linear(16, 24), "down_proj": nn.Linear(24, 16)})


def keeps_what_meta_tensors_foretell(subject: Subject) -> None:
    """Its state has the size that meta tensors foretell, from the first step on."""
    with torch.device("meta"):
        foretold = allocated_state_bytes(subject.build_on(tiny_gpt2())).total_bytes
    model = tiny_gpt2()
    optimizer = subject.build_on(model)
    train(model, optimizer, range(1))
    after_one = state_bytes(optimizer).total_bytes
    train(model, optimizer, range(1, 4))
    sizes = (after_one, state_bytes(optimizer).total_bytes)
    require_promise(sizes == (foretold, foretold), f"foretold {foretold} bytes; after 1 and 4 steps there are {sizes}")


PROMISES: tuple[Promise, ...] = (
    holds_every_parameter_once,
    learns_a_gpt2,
    learns_a_llama,
    learns_in_bfloat16,
    repeats_itself,
    resumes_in_float32,
    resumes_in_bfloat16,
    loads_a_state_twice,
    copies_deeply,
    obeys_a_scheduler,
    keeps_rates_of_groups,
    takes_a_closure,
    leaves_parameters_without_gradient,
    leaves_out_frozen_parameters,
    refuses_an_empty_model,
    keeps_a_bad_gradient_apart,
    decays_matrices_only,
    has_the_modes_of_its_entry,
    survives_zero_gradients,
    outlives_an_idle_matrix,
    keeps_what_meta_tensors_foretell,
    *STEP_PROMISES,
)
"""The promises of every optimizer."""


def promises_of(subject: Subject) -> tuple[Promise, ...]:
    """Return everybody's, and those that its entry claims of its steps."""
    claimed = tuple(promise for claim, promise in CLAIMED.items() if claim in subject.entry.claims)
    return PROMISES + claimed + ((moves_elements_apart,) if subject.entry.elementwise else ())


def _require_learning(subject: Subject, model: nn.Module) -> None:
    _require_falling_loss(train(model, subject.build_on(model), range(STEPS)))


def _require_falling_loss(losses: list[float]) -> None:
    require_promise(
        losses[-1] < losses[0] - LEARNT_NATS,
        f"{len(losses)} steps brought the loss from {losses[0]:.3f} to {losses[-1]:.3f} only; is the rate right?",
    )


def _require_resumption(subject: Subject, dtype: torch.dtype) -> None:
    whole = tiny_gpt2(dtype=dtype)
    train(whole, subject.build_on(whole), range(8))
    first = tiny_gpt2(dtype=dtype)
    first_optimizer = subject.build_on(first)
    train(first, first_optimizer, range(4))
    second = tiny_gpt2(seed=1, dtype=dtype)
    second_optimizer = subject.build_on(second)
    second.load_state_dict(_save_and_load(first.state_dict()))
    second_optimizer.load_state_dict(_save_and_load(first_optimizer.state_dict()))
    saved, loaded = state_bytes(first_optimizer), state_bytes(second_optimizer)
    require_promise(saved == loaded, f"{saved.total_bytes} bytes of state were saved, {loaded.total_bytes} loaded")
    train(second, second_optimizer, range(4, 8))
    _require_same_bits(whole, second)


def _save_and_load(state: dict[str, object]) -> dict[str, object]:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    loaded: dict[str, object] = torch.load(file, weights_only=True)
    return loaded


def _changed_weights(model: nn.Module, old_weights: dict[str, Tensor]) -> set[str]:
    return {name for name, value in model.named_parameters() if not torch.equal(value, old_weights[name])}


def _require_changes(model: nn.Module, old_weights: dict[str, Tensor], expected: set[str]) -> None:
    changes = _changed_weights(model, old_weights)
    require_promise(not (extra_names := changes - expected), f"these moved and should not: {list_names(extra_names)}")
    require_promise(
        not (missing_names := expected - changes), f"these did not move and should: {list_names(missing_names)}"
    )


def _require_same_bits(model: nn.Module, other: nn.Module) -> None:
    differ = _changed_weights(model, copy_weights(other))
    require_promise(not differ, f"these differ: {list_names(differ)}")
