"""The part of a step that C works out: the same formulas, when it is used, and what happens where it cannot be."""

from functools import cache, partial

import pytest
import torch
from torch import nn

from optim.adapm import AdaPM, AdaPMMini, compiled
from optim.plan.blocks import BlockPlan
from tests.factories.blocks import matrix_block
from worker.checks.tiny_models import tiny_gpt2, tiny_llama, train

CPU = torch.device("cpu")
LR = 1e-3
needs_c = pytest.mark.skipif(not compiled.has_compiler("cpu"), reason="install a C compiler (apt-get install gcc)")


@pytest.fixture
def compiles_small_blocks(monkeypatch):
    monkeypatch.setattr(compiled, "_CPU_SMALLEST_BLOCK", 2)


def _moved(*, compile: bool, learning_rates: list[float]) -> torch.Tensor:
    """The weights of one low-rank block after a step at each rate."""
    generator = torch.Generator().manual_seed(0)
    weight = nn.Parameter(torch.randn(24, 40, generator=generator))
    optimizer = AdaPM([("w", weight)], LR, plan=BlockPlan((matrix_block((24, 40), rank=2),)), compile=compile)
    for rate in learning_rates:
        optimizer.param_groups[0]["lr"] = rate
        weight.grad = 1e-3 * torch.randn(24, 40, generator=generator)
        optimizer.step()
    return weight.detach()


def test_c_moves_a_block_as_torchs_operators_do(compiles_small_blocks, monkeypatch):
    if not compiled.has_compiler("cpu"):
        with pytest.raises(RuntimeError, match="compile=True needs a compiler for cpu"):
            _moved(compile=True, learning_rates=[LR])
        return
    moves = count_calls(monkeypatch)
    rates = [LR, LR / 2, LR / 3, LR / 4]
    weights = _moved(compile=True, learning_rates=rates)
    assert moves == [(24, 40)] * 4
    torch.testing.assert_close(weights, _moved(compile=False, learning_rates=rates), rtol=1e-5, atol=1e-7)
    assert torch.equal(weights, _moved(compile=True, learning_rates=rates))


@needs_c
@pytest.mark.parametrize(
    ("cls", "tiny", "options"),
    [(AdaPM, tiny_gpt2, {}), (AdaPMMini, tiny_llama, {}), (AdaPM, tiny_llama, {"clip": None, "debias_moments": True})],
)
def test_c_moves_a_model_as_torchs_operators_do(compiles_small_blocks, monkeypatch, cls, tiny, options):
    moves = count_calls(monkeypatch)
    plain, other = tiny(), tiny()
    train(plain, cls.for_model(plain, LR, compile=False, **options), range(3))
    assert moves == []
    train(other, cls.for_model(other, LR, compile=True, **options), range(3))
    assert len(moves) >= 3 * 6  # the rest has a kernel of torch
    for weight, two in zip(plain.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(weight, two, rtol=1e-3, atol=1e-5)


def count_calls(monkeypatch) -> list[tuple[int, ...]]:
    """Shapes that C moves from now on."""
    shapes, move = [], compiled.move

    def told(weight, *operands):
        shapes.append(tuple(weight.shape))
        move(weight, *operands)

    monkeypatch.setattr(compiled, "move", told)
    return shapes


@needs_c
@pytest.mark.parametrize("shape", [(70, 130), (1, 33), (33, 1), (3, 1030)])
@pytest.mark.parametrize("kept", ["element", "row", "column"])
@pytest.mark.parametrize(("has_product", "clip"), [(False, 0.5), (True, float("inf"))])
def test_one_pass_of_c_has_the_formulas(shape, kept, has_product, clip):
    """In slices of wider matrices, as fused parameters have them; what is beside the slice stays."""
    (rows, columns), generator = shape, torch.Generator().manual_seed(0)
    draw = partial(torch.randn, generator=generator)
    numbers = torch.tensor([0.3, 0.7, 0.999, 0.001, 1.5, 1e-8, clip, 0.999, 0.1])
    weight, gradient = draw(rows, columns + 5), draw(rows, columns + 3)[:, :columns]
    product = draw(rows, columns) if has_product else None
    moment = draw(rows, columns + 1).abs() if kept == "element" else None
    divisor = {"row": draw(rows, 1).abs() + 0.1, "column": draw(1, columns).abs() + 0.1}.get(kept)
    expected, expected_moment = weight.clone(), None if moment is None else moment.clone()
    version = weight._version
    compiled.move(weight[:, :columns], gradient, product, _left(moment, columns), divisor, numbers)
    in_torchs_operators(expected[:, :columns], gradient, product, _left(expected_moment, columns), divisor, numbers)
    assert weight._version > version
    torch.testing.assert_close(weight, expected, rtol=1e-5, atol=1e-6)
    if moment is not None:
        torch.testing.assert_close(moment, expected_moment, rtol=1e-5, atol=1e-6)


def in_torchs_operators(weight, gradient, product, moment, divisor, numbers):
    if moment is not None:
        moment.mul_(numbers[2]).add_(gradient.square() * numbers[3])
        divisor = moment.sqrt() * numbers[4] + numbers[5]
    numerator = gradient * numbers[0] + (0.0 if product is None else product * numbers[1])
    weight.mul_(numbers[7]).sub_((numerator / divisor).clamp(-numbers[6], numbers[6]) * numbers[8])


def _left(matrix: torch.Tensor | None, columns: int) -> torch.Tensor | None:
    return None if matrix is None else matrix[:, :columns]


@needs_c
def test_c_keeps_what_is_not_a_number_for_the_loop_to_see():
    weight, gradient = torch.ones(2, 20), torch.zeros(2, 20)
    gradient[1, 3] = float("nan")
    numbers = torch.tensor([1.0, 1.0, 0.999, 0.001, 1.0, 1e-8, 0.5, 1.0, 0.1])
    compiled.move(weight, gradient, None, torch.ones(2, 20), None, numbers)
    assert weight.isnan().nonzero().tolist() == [[1, 3]]


@needs_c
def test_other_types_and_layouts_are_left_to_torchs_operators():
    plain = torch.zeros(400, 600)
    assert compiled.is_worth_compiling((400, 600), plain) and compiled.is_worth_compiling((400, 600), plain[:, 2:4])
    for tensor in (plain.double(), plain.bfloat16(), plain.mT, plain.to("meta")):
        assert not compiled.is_worth_compiling((400, 600), tensor)


def test_a_c_compiler_that_fails_is_told_and_the_step_goes_on(compiles_small_blocks, monkeypatch, tmp_path):
    broken = tmp_path / "cc"
    broken.write_text("#!/bin/sh\necho no OpenMP >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("CC", str(broken))
    monkeypatch.setattr(compiled, "library", cache(compiled.library.__wrapped__))
    with pytest.warns(RuntimeWarning, match="could not be compiled, and is slower: .* failed: no OpenMP"):
        weights = _moved(compile=True, learning_rates=[LR])
    assert torch.equal(weights, _moved(compile=False, learning_rates=[LR]))


@pytest.mark.parametrize(
    ("asked", "elements", "device", "expected"),
    [
        (None, 2**20, "cpu", False),
        (None, 2**27, "cpu", True),
        (None, 2**20, "cuda", True),
        (True, 2**20, "cpu", True),
        (False, 2**27, "cpu", False),
        (False, 2**27, "cuda", False),
    ],
)
def test_it_compiles_when_asked_and_for_large_models(monkeypatch, asked, elements, device, expected):
    monkeypatch.setattr(compiled, "has_compiler", lambda device_type: True)
    assert compiled.should_compile(asked, elements, torch.device(device)) is expected


def test_without_a_compiler_only_an_explicit_wish_is_refused(monkeypatch):
    monkeypatch.setattr(compiled, "has_compiler", lambda device_type: False)
    assert compiled.should_compile(None, 2**30, CPU) is False
    with pytest.raises(RuntimeError, match=r"compile=True needs a compiler for cpu: .* leave compile=None"):
        compiled.should_compile(True, 10, CPU)
