"""Weights in bfloat16: rounded by chance, or trained by a copy in float32, they follow small updates."""

import copy
import math
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from optim.adapm import AdaPM, AdaPMMini, groups
from optim.adapm.rounding import round_stochastically, rounding_key
from optim.state import allocated_state_bytes, state_bytes
from tests.twins import rounding as twin
from worker.checks.tiny_models import tiny_gpt2, train

STOCHASTIC: dict[str, Any] = {"bf16_stochastic_round": True}
MASTER: dict[str, Any] = {"master_weights": True}
KEY = rounding_key(0, 1, "block")
LARGEST = torch.finfo(torch.bfloat16).max


def drift(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int = 40) -> nn.Module:
    """Steps along gradients that point the same way on average."""
    random = torch.Generator().manual_seed(1)
    for _ in range(steps):
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=random)
            parameter.grad = (1e-3 * (noise + parameter.detach().float().sign())).to(parameter.dtype)
        optimizer.step()
    return model


def flat(model: nn.Module) -> Tensor:
    return torch.cat([value.detach().float().flatten() for value in model.parameters()])


def same(model: nn.Module, other: nn.Module) -> bool:
    return torch.equal(flat(model), flat(other))


SPECIAL = [
    0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 1e-45, -1e-45, 1e-39, 3.4e38, -3.4e38, 3.4028234e38, LARGEST,
    -LARGEST, LARGEST * (1 + 2**-20), 1 + 2**-20, -1 - 2**-9, 2**-126, 0.1, -123.456,
]  # fmt: skip


def test_rounding_is_that_of_the_twin():
    """Zeros, subnormals, the largest numbers, infinities and NaN included."""
    exact = torch.cat([torch.tensor(SPECIAL), torch.randn(400) * torch.logspace(-30, 30, 400)])
    for step in range(20):
        key = rounding_key(7, step, "block")
        rounded = round_stochastically(exact, key)
        assert rounded.dtype is torch.bfloat16
        expected = [twin.round_stochastically(value, *key, index) for index, value in enumerate(exact.tolist())]
        assert torch.equal(rounded.float().nan_to_num(nan=7.0), torch.tensor(expected).nan_to_num(nan=7.0))
    assert torch.equal(rounded.isnan(), exact.isnan())


def test_the_mean_of_many_roundings_is_the_exact_number():
    """Within four standard errors of a fair coin of that share, and over all numbers their squares are chi-squared."""
    exact = torch.randn(2_000, generator=torch.Generator().manual_seed(0))
    floor = (exact.view(torch.int32) & ~0xFFFF).view(torch.float32)
    share = (exact.view(torch.int32) & 0xFFFF) / 2**16
    tries = 400
    ups = sum(
        (round_stochastically(exact, rounding_key(0, step, "w")).float() != floor).float() for step in range(tries)
    )
    assert isinstance(ups, Tensor)
    fair = (share * tries > 5) & ((1 - share) * tries > 5)
    scores = ((ups - tries * share) / (tries * share * (1 - share)).sqrt())[fair]
    assert scores.mean().abs() < 4 / math.sqrt(len(scores))
    assert abs(float(scores.square().mean()) - 1) < 4 * math.sqrt(2 / len(scores))


def test_a_part_is_rounded_as_in_the_whole():
    """By rows, by columns, and of a vector: whoever holds a part of a block rounds it as one process does."""
    whole = torch.randn(12, 10)
    rounded = round_stochastically(whole, KEY)
    part = round_stochastically(whole[4:9, 3:7], KEY, origin=(4, 3), whole_shape=(12, 10))
    assert torch.equal(part, rounded[4:9, 3:7])
    assert not torch.equal(round_stochastically(whole[4:9, 3:7], KEY), part)
    vector = round_stochastically(whole[0], KEY)
    assert torch.equal(round_stochastically(whole[0, 6:], KEY, origin=(6,), whole_shape=(10,)), vector[6:])


@pytest.mark.parametrize("cls", [AdaPM, AdaPMMini])
@pytest.mark.parametrize(
    ("options", "share", "distance"), [({}, 0.40, 0.79), (STOCHASTIC, 1.00, 0.36), (MASTER, 0.99, 0.10)]
)
def test_at_a_low_rate_weights_follow(cls: type[AdaPM], options: dict[str, Any], share: float, distance: float):
    """Share of the way of float32 weights at a rate of 3e-5, and the distance from where it ends by its length: rounded
    to the nearest, most updates are lost. docs/adapm.md has these figures."""
    exact, narrow = tiny_gpt2(), tiny_gpt2(dtype=torch.bfloat16)
    starts = flat(exact), flat(narrow)
    drift(exact, cls.for_model(exact, 3e-5))
    drift(narrow, cls.for_model(narrow, 3e-5, **options))
    way, narrow_way = flat(exact) - starts[0], flat(narrow) - starts[1]
    assert float(narrow_way @ way / (way @ way)) == pytest.approx(share, abs=0.01)
    assert float((narrow_way - way).norm() / way.norm()) == pytest.approx(distance, abs=0.01)


@pytest.mark.parametrize("options", [STOCHASTIC, MASTER])
def test_copies_of_an_optimizer_go_on_alike(options: dict[str, Any]):
    model = tiny_gpt2(dtype=torch.bfloat16)
    optimizer = AdaPM.for_model(model, 3e-4, **options)
    train(model, optimizer, range(2))
    pair = copy.deepcopy((model, optimizer)), pickle.loads(pickle.dumps((model, optimizer)))
    train(model, optimizer, range(2, 4))
    for model_copy, optimizer_copy in pair:
        train(model_copy, optimizer_copy, range(2, 4))
        assert same(model_copy, model)


def test_rows_round_alike(monkeypatch: pytest.MonkeyPatch):
    """The chance is that of the place, however a block is cut up."""
    plain, cut = tiny_gpt2(dtype=torch.bfloat16), tiny_gpt2(dtype=torch.bfloat16)
    drift(plain, AdaPM.for_model(plain, 3e-4, **STOCHASTIC), 3)
    monkeypatch.setattr(groups, "limit_of", lambda *_, **__: 100)
    drift(cut, AdaPM.for_model(cut, 3e-4, **STOCHASTIC), 3)
    close = (flat(cut) - flat(plain)).abs() <= 2**-8 * flat(plain).abs()
    assert (flat(cut) == flat(plain)).float().mean() > 0.99, "sums in another order may round elsewhere"
    assert close.all()


def test_weights_that_somebody_loads_are_followed():
    """Between two steps: the copy gives way where the weight is no longer its rounding, and nowhere else."""
    model = tiny_gpt2(dtype=torch.bfloat16)
    optimizer = AdaPM.for_model(model, 1e-4, **MASTER)
    drift(model, optimizer, 3)
    parameter = next(value for name, value in model.named_parameters() if name == "transformer.wte.weight")
    master_rows = optimizer.state[parameter]["master_weight"][1:].clone()
    with torch.no_grad():
        parameter[0] = 3.0
    for group in optimizer.param_groups:
        group["lr"] = 0.0
    drift(model, optimizer, 1)
    assert (parameter[0] == 3.0).all()
    assert torch.equal(optimizer.state[parameter]["master_weight"][1:], master_rows)


def test_float32_weights_need_neither():
    plain_model = tiny_gpt2()
    drift(plain_model, AdaPM.for_model(plain_model, 3e-4), 2)
    for options in (STOCHASTIC, MASTER):
        model = tiny_gpt2()
        optimizer = AdaPM.for_model(model, 3e-4, **options)
        drift(model, optimizer, 2)
        assert same(model, plain_model)
        assert not any("master_weight" in state for state in optimizer.state.values())


def test_bytes_of_master_weights_are_counted_before_training():
    model = tiny_gpt2(dtype=torch.bfloat16)
    ahead = allocated_state_bytes(AdaPMMini.for_model(tiny_gpt2(dtype=torch.bfloat16), 1e-3, **MASTER))
    optimizer = AdaPMMini.for_model(model, 1e-3, **MASTER)
    drift(model, optimizer, 1)
    assert ahead == state_bytes(optimizer)
    assert ahead.by_state["master_weight"] == 4 * sum(value.numel() for value in model.parameters())
    assert sum(ahead.by_block.values()) + ahead.counter_bytes == ahead.total_bytes


def test_what_excludes_each_other_or_has_no_such_rounding_is_refused():
    with pytest.raises(ValueError, match="exclude each other; take master_weights"):
        AdaPM.for_model(tiny_gpt2(), 1e-3, **STOCHASTIC, **MASTER)
    half = tiny_gpt2(dtype=torch.float16)
    with pytest.raises(ValueError, match=r"float16.*take master_weights"):
        AdaPM.for_model(half, 1e-3, **STOCHASTIC)
    drift(half, AdaPM.for_model(half, 1e-3, **MASTER), 2)
    assert flat(half).isfinite().all()
