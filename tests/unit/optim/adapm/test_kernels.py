"""The Triton kernel against torch's formulas, over kinds of blocks, shapes, types and layouts.

On a GPU these run as they are; without one Triton's interpreter runs the kernel, in a process of its own that
`test_kernel_builds.py` starts: `TRITON_INTERPRET=1 python -m pytest tests/unit/optim/adapm/test_kernels.py -m triton`.
"""

import os
from dataclasses import dataclass, field

import pytest
import torch
from torch import Tensor

from optim.adapm import AdaPM, AdaPMMini, compiled
from optim.adapm.low_rank import Factors, WarmStart
from optim.adapm.rounding import round_stochastically, rounding_key
from worker.checks.tiny_models import tiny_gpt2, tiny_llama, train

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
pytestmark = [
    pytest.mark.triton,
    pytest.mark.skipif(not INTERPRETED and not torch.cuda.is_available(), reason="TRITON_INTERPRET=1, or a GPU"),
]
DEVICE = torch.device("cpu" if INTERPRETED else "cuda")
# The weights of G and of the product in m, b2, 1 - b2, debias^-1/2, eps, clip, 1 - lr wd, lr, 1 - b1.
NUMBERS = (0.7, 1.9, 0.95, 0.05, 1.3, 1e-8, 1.0, 0.99, 0.02, 0.1)
SHAPES = ((1, 1), (1, 70), (260, 1), (33, 65), (3, 1030))
"""The least, and of every tile one whole and a part of another, in either direction."""


@pytest.fixture(scope="module")
def kernels():
    from optim.adapm import kernels

    return kernels


@dataclass(kw_only=True)
class Case:
    """Blocks of one shape, with what moves them, and the same in float64."""

    weights: list[Tensor]
    gradients: list[Tensor]
    averages: list[Tensor] = field(default_factory=list)
    moments: list[Tensor] = field(default_factory=list)
    factors: Factors | None = None
    divisor: Tensor | None = None

    def moved(self, numbers: tuple[float, ...] = NUMBERS) -> list[tuple[Tensor, Tensor | None, Tensor | None]]:
        """W, m and v of each block after the step, by torch's formulas in float64."""
        of_gradient, of_product, b2, rest2, debias, eps, clip, keep, lr, rest1 = numbers
        blocks = []
        for k, (weight, gradient) in enumerate(zip(self.weights, self.gradients, strict=True)):
            w, g = weight.double(), gradient.double()
            average = moment = None
            if self.averages:
                average = self.averages[k].double().lerp(g, rest1)
                numerator = average * of_product
            else:
                numerator = of_gradient * g
                if self.factors is not None:
                    numerator += of_product * (self.factors.left[k].double() @ self.factors.right[k].double())
            if self.divisor is not None:
                root = self.divisor[k].double()
            else:
                v = self.moments[k].double()
                moment = v * b2 + rest2 * (g.square() if v.ndim == 2 else g.square().mean(dim=1))
                root = (moment if v.ndim == 2 else moment[:, None]).sqrt() * debias + eps
            blocks.append((keep * w - lr * (numerator / root).clamp(-clip, clip), average, moment))
        return blocks


def make_case(
    shape: tuple[int, int],
    *,
    kind: str,
    second: str,
    blocks: int = 1,
    dtype: torch.dtype = torch.float32,
    state: torch.dtype = torch.float32,
    rank: int = 5,
) -> Case:
    """Blocks of a kind ("none", "low rank", "full") whose v is kept for each "element" or "row", or given by either."""
    draw = torch.Generator().manual_seed(1)

    def normal(*size: int, of: torch.dtype = torch.float32) -> Tensor:
        return torch.randn(size, generator=draw).to(DEVICE, of)

    (m, n), B = shape, blocks
    case = Case(
        weights=[normal(m, n, of=dtype) for _ in range(B)], gradients=[normal(m, n, of=dtype) for _ in range(B)]
    )
    if kind == "full":
        case.averages = [normal(m, n, of=state) for _ in range(B)]
    if kind == "low rank":
        case.factors = Factors(normal(B, m, 2 * rank), normal(B, 2 * rank, n))
    if second in ("element", "row"):
        case.moments = [normal(m, n).square().to(state) for _ in range(B)]
        if second == "row":
            case.moments = [moment[:, 0].contiguous() for moment in case.moments]
    else:
        case.divisor = normal(B, m, 1).abs() if second == "given rows" else normal(B, 1, n).abs()
    return case


def check(kernels, case: Case, *, numbers: tuple[float, ...] = NUMBERS, rtol: float = 2e-5, atol: float = 1e-5) -> None:
    expected = case.moved(numbers)
    kernels.move(
        kernels.Blocks(case.weights, case.gradients, case.averages, case.moments),
        case.factors,
        case.divisor,
        torch.tensor(numbers, device=DEVICE),
    )
    for k, (weight, average, moment) in enumerate(expected):
        for actual, wanted in (
            (case.weights[k], weight),
            (case.averages[k] if case.averages else None, average),
            (case.moments[k] if case.moments else None, moment),
        ):
            if wanted is not None:
                assert actual is not None
                exact = torch.finfo(actual.dtype).eps
                torch.testing.assert_close(actual.double(), wanted, rtol=max(rtol, exact), atol=max(atol, exact / 16))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(
    ("kind", "second"),
    [
        ("none", "element"),
        ("low rank", "element"),
        ("full", "row"),
        ("low rank", "given columns"),
        ("none", "given rows"),
    ],
)
def test_every_kind_of_block_and_every_edge_is_moved_as_torch_does(kernels, shape, kind, second):
    check(kernels, make_case(shape, kind=kind, second=second))


@pytest.mark.parametrize("rank", [1, 8, 19])
def test_products_of_any_depth(kernels, rank):
    check(kernels, make_case((33, 65), kind="low rank", second="element", rank=rank), atol=1e-4)


def test_blocks_of_several_parameters_are_moved_in_one_launch(kernels, monkeypatch):
    launches, kernel = [], kernels._move

    class Counted:
        def __getitem__(self, grid: tuple[int]):
            launches.append(grid)
            return kernel[grid]

    monkeypatch.setattr(kernels, "_move", Counted())
    for second in ("element", "row", "given columns", "given rows"):
        check(kernels, make_case((20, 65), kind="low rank", second=second, blocks=2))
    assert len(launches) == 4


@pytest.mark.parametrize("kind", ["none", "low rank", "full"])
def test_slices_of_fused_matrices_and_turned_matrices_lie_where_they_do(kernels, kind):
    """And what lies beside them stays as it is."""
    case = make_case((40, 50), kind=kind, second="element", blocks=3)
    whole = [torch.full((40, 150), 7.0, device=DEVICE) for _ in range(3)]
    for k, matrix in enumerate(whole):
        middle = matrix[:, 50:100].copy_(case.weights[k])
        case.weights[k] = middle
    case.gradients[1] = case.gradients[1].t().contiguous().t()
    check(kernels, case)
    for matrix in whole:
        assert bool((matrix[:, :50] == 7.0).all() and (matrix[:, 100:] == 7.0).all())


@pytest.mark.parametrize(
    ("dtype", "state", "kind", "second"),
    [
        (torch.bfloat16, torch.float32, "low rank", "element"),
        (torch.bfloat16, torch.bfloat16, "full", "row"),
        (torch.float16, torch.float32, "full", "row"),
        (torch.float16, torch.bfloat16, "low rank", "element"),
    ],
)
def test_narrow_weights_and_state_are_rounded_to_the_nearest(kernels, dtype, state, kind, second):
    check(kernels, make_case((33, 70), kind=kind, second=second, dtype=dtype, state=state))


def test_float32_gradients_move_bfloat16_weights_and_the_other_way_round(kernels):
    for widened in ("gradients", "weights"):
        case = make_case((33, 70), kind="low rank", second="element", dtype=torch.bfloat16)
        setattr(case, widened, [tensor.float() for tensor in getattr(case, widened)])
        check(kernels, case)


def test_bfloat16_is_rounded_to_even_and_by_chance_exactly_as_torch_does(kernels):
    """Weights alone are rounded: the update is 0, so that what is rounded is known to the bit."""
    draw = torch.Generator().manual_seed(2)
    exact = torch.randn(37, 50, generator=draw).to(DEVICE) * torch.logspace(-8, 8, 50, device=DEVICE)
    exact[0, :4] = torch.tensor([float("inf"), float("-inf"), float("nan"), 3.3895e38])
    nothing = (0.0, 0.0, 1.0, 0.0, 1.0, 1.0, 1.0, 0.75, 0.0, 0.0)
    weight, key = exact.bfloat16(), rounding_key(3, 5, "block")
    for rounding, expected in (
        (None, (weight.float() * 0.75).bfloat16()),
        (kernels.StochasticRounding([key], 0, 50), round_stochastically(weight.float() * 0.75, key)),
        (
            kernels.StochasticRounding([key], 4 * 200 + 60, 200),
            round_stochastically(weight.float() * 0.75, key, origin=(4, 60), whole_shape=(99, 200)),
        ),
    ):
        moved = weight.clone()
        zeros, ones = torch.zeros_like(exact), torch.ones(1, 37, 1, device=DEVICE)
        kernels.move(
            kernels.Blocks([moved], [zeros], [], []),
            None,
            ones,
            torch.tensor(nothing, device=DEVICE),
            rounding=rounding,
        )
        assert torch.equal(moved.view(torch.int16), expected.view(torch.int16)) or bool(
            ((moved == expected) | (moved.isnan() & expected.isnan())).all()
        )


@pytest.mark.parametrize("second", ["element", "row"])
def test_a_gradient_that_is_not_finite_shows_and_spoils_no_other_value(kernels, second):
    case = make_case((5, 40), kind="none", second=second)
    original = case.weights[0].clone()
    case.gradients[0][2, 3] = float("nan")
    kernels.move(
        kernels.Blocks(case.weights, case.gradients, [], case.moments), None, None, torch.tensor(NUMBERS, device=DEVICE)
    )
    spoilt = case.weights[0].isnan()
    assert spoilt[2].all() if second == "row" else spoilt[2, 3]
    assert not spoilt[[0, 1, 3, 4]].any()
    assert bool((case.weights[0] != original)[0].all())


@pytest.mark.parametrize("second", ["element", "row"])
def test_a_second_moment_that_is_infinite_stays_so_and_its_weights_at_rest(kernels, second):
    """As in Adam: no update, and decay alone."""
    case = make_case((5, 40), kind="none", second=second)
    case.moments[0][2] = torch.inf
    original = case.weights[0].clone()
    kernels.move(
        kernels.Blocks(case.weights, case.gradients, [], case.moments), None, None, torch.tensor(NUMBERS, device=DEVICE)
    )
    assert bool((case.moments[0][2] == torch.inf).all())
    assert torch.equal(case.weights[0][2], original[2] * NUMBERS[7])


def test_without_clipping_and_without_elements(kernels):
    check(
        kernels, make_case((20, 30), kind="low rank", second="element"), numbers=(*NUMBERS[:6], torch.inf, *NUMBERS[7:])
    )
    for shape in ((0, 4), (4, 0)):
        check(kernels, make_case(shape, kind="none", second="element"))


def test_torch_notices_that_weights_have_moved(kernels):
    """A gradient that needs those of before is refused, not wrong."""
    weight = torch.ones(20, 30, device=DEVICE, requires_grad=True)
    loss = weight.square().sum()
    gradient = torch.ones(20, 30, device=DEVICE)
    blocks = kernels.Blocks([weight.detach()], [gradient], [], [gradient.clone()])
    kernels.move(blocks, None, None, torch.tensor(NUMBERS, device=DEVICE))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_a_product_in_tf32_is_as_far_off_as_its_mantissa_is_short(kernels):
    case = make_case((70, 80), kind="low rank", second="element")
    ((expected, _, _),) = case.moved()
    blocks = kernels.Blocks(case.weights, case.gradients, [], case.moments)
    kernels.move(blocks, case.factors, None, torch.tensor(NUMBERS, device=DEVICE), precision="high")
    # Ten products of two numbers of 11 bits, times 1.9, over roots of 0.1 and more, times a rate of 0.02.
    torch.testing.assert_close(case.weights[0].double(), expected, rtol=0.0, atol=0.02 * 10 * 2**-6)


@pytest.mark.parametrize(("axis", "dtype"), [(0, torch.float32), (1, torch.bfloat16)])
def test_squares_are_summed_along_rows_and_columns(kernels, axis, dtype):
    for shape in ((1, 70), (65, 129)):
        case = make_case(shape, kind="none", second="element", blocks=2, dtype=dtype)
        case.gradients[1] = case.gradients[1].t().contiguous().t()
        sums = kernels.square_sums(case.gradients, axis=axis)
        expected = torch.stack([gradient.double().square().sum(dim=1 - axis) for gradient in case.gradients])
        torch.testing.assert_close(sums.double(), expected, rtol=1e-6, atol=0.0)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize(
    ("rank", "most_rows", "precision"), [(1, 128, "highest"), (19, 128, "high"), (17, 16, "highest")]
)
def test_thin_products_and_sums_of_squares_are_those_of_torch(kernels, monkeypatch, axis, rank, most_rows, precision):
    """With what goes through the factors of the step before, and more rows than a tile; interpreted without TF32."""
    monkeypatch.setattr(kernels, "_MOST_ROWS", most_rows)
    atol = 0.1 if precision == "high" and not INTERPRETED else 1e-4
    for shape in ((1, 70), (65, 70)):
        case = make_case(shape, kind="none", second="element", blocks=2)
        case.gradients[1] = case.gradients[1].t().contiguous().t()
        draw = torch.Generator().manual_seed(0)
        rows = torch.randn(2, shape[1 - axis], rank, generator=draw).to(DEVICE).mT
        sums = torch.empty(2, shape[axis], device=DEVICE)
        mixing = torch.randn(2, rank, rank, generator=draw).to(DEVICE)
        thin = torch.randn(2, shape[axis], rank, generator=draw).to(DEVICE).mT
        products = kernels.multiply(WarmStart(rows), case.gradients, axis=axis, sums=sums, precision=precision)
        G = torch.stack([gradient.double() for gradient in case.gradients])
        wide = rows.double() @ (G.mT if axis == 0 else G)
        torch.testing.assert_close(products.double(), wide, rtol=1e-5, atol=atol)
        torch.testing.assert_close(sums.double(), G.square().sum(dim=2 - axis), rtol=1e-6, atol=0.0)
        carried = kernels.Carried(mixing, thin, 0.75)
        carried_product = kernels.multiply(
            WarmStart(rows), case.gradients, axis=axis, carried=carried, precision=precision
        )
        wide = 0.25 * wide + 0.75 * mixing.double() @ thin.double()
        torch.testing.assert_close(carried_product.double(), wide, rtol=1e-5, atol=atol)


@pytest.mark.parametrize(("rank", "length", "blocks"), [(1, 3, 1), (5, 520, 2), (66, 97, 1)])
@pytest.mark.parametrize(("turned", "shares_sketch"), [(False, True), (True, False)])
def test_rows_are_scaled_and_replaced_wherever_they_are_read(kernels, rank, length, blocks, turned, shares_sketch):
    """Weak rows of R' are not read at all; others are multiplied before their product could leave the range."""
    draw = torch.Generator().manual_seed(0)
    rows = torch.randn(blocks, rank, length, generator=draw)
    sizes = torch.logspace(-25.0, 30.0, rank)[:, None]
    rows = (rows * sizes).to(DEVICE)
    inverse = (1.0 / sizes).to(DEVICE).repeat(blocks, 1, 1)
    inverse[:, 1::3], rows[:, 1::3] = 0.0, torch.nan
    sketch = torch.randn((rank, length) if shares_sketch else (blocks, rank, length), generator=draw).to(DEVICE)
    if turned:
        rows = rows.mT.contiguous().mT
    start = WarmStart(rows, inverse, sketch)
    other_rows = torch.randn(blocks, length, rank, generator=draw).to(DEVICE).mT
    exact = start.dense().double()
    assert exact.isfinite().all()
    for dtype, error in ((torch.float64, 1e-12), (torch.float32, 1e-5)):
        products = kernels.multiply(start, other_rows, axis=0, dtype=dtype)
        assert products.dtype is dtype
        torch.testing.assert_close(
            products.double(), exact @ other_rows.double().mT, rtol=error, atol=error * length**0.5
        )
    gradients = [torch.randn(40, length, generator=draw).to(DEVICE) for _ in range(blocks)]
    products = kernels.multiply(start, gradients, axis=0)
    expected = exact @ torch.stack(gradients).double().mT
    torch.testing.assert_close(products.double(), expected, rtol=1e-5, atol=1e-5 * length**0.5)


def test_inner_products_of_long_rows_are_summed_in_parts_and_in_float64(kernels):
    """Rows of which another is the sum but for a part in 10^10: in float32 nothing would be left of it."""
    draw = torch.Generator().manual_seed(0)
    rows = torch.randn(1, 2, 2000, generator=draw).to(DEVICE)
    rows[:, 1] = rows[:, 0]
    rows[0, 1, 0] += 1e-3
    gram = kernels.multiply(WarmStart(rows), rows, axis=0, dtype=torch.float64)[0]
    remainder = gram[1, 1] - gram[0, 1] ** 2 / gram[0, 0]
    wide = rows[0].double()
    expected = (wide[1] - wide[0] * (wide[0] @ wide[1]) / (wide[0] @ wide[0])).square().sum()
    torch.testing.assert_close(remainder, expected, rtol=1e-5, atol=0.0)


def test_it_is_tried_once_on_a_device_before_it_is_used(kernels, monkeypatch):
    kernels.try_on(DEVICE)
    monkeypatch.setattr(kernels, "_MOST_ROWS", 16)
    with monkeypatch.context() as patched:
        patched.setattr(kernels, "move", lambda blocks, *operands, **how: blocks.weights[0].add_(1.0))
        with pytest.raises(RuntimeError, match="do not agree with torch's operators"):
            kernels.try_on(DEVICE)
    multiply = kernels.multiply
    for of_gradients in (True, False):

        def miss(start, matrices, *, _of_gradients=of_gradients, **how):
            product = multiply(start, matrices, **how)
            return product + 1.0 if isinstance(matrices, list) is _of_gradients else product

        with monkeypatch.context() as patched:
            patched.setattr(kernels, "multiply", miss)
            with pytest.raises(RuntimeError, match="do not agree with torch's operators"):
                kernels.try_on(DEVICE)


@pytest.fixture
def uses_kernels(monkeypatch, kernels):
    """The precision of its products, each time that the kernel moved something."""
    calls: list[object] = []
    monkeypatch.setattr(compiled, "kernels_for", lambda device: kernels)
    monkeypatch.setattr(compiled, "has_compiler", lambda device_type: True)

    move = kernels.move

    def count(*arguments: object, **options: object) -> None:
        calls.append(options["precision"])
        move(*arguments, **options)

    monkeypatch.setattr(kernels, "move", count)
    return calls


@pytest.mark.parametrize(
    ("cls", "tiny", "options"),
    [
        (
            AdaPM,
            tiny_llama,
            {"matmul_precision": "high", "inner_iterations": 2, "debias_moments": True, "clip": None},
        ),
        (AdaPMMini, tiny_gpt2, {"state_dtype": torch.int8, "bias_correction": False}),
    ],
)
def test_a_model_is_trained_as_by_torchs_operators(uses_kernels, cls, tiny, options):
    plain, other = tiny().to(DEVICE), tiny().to(DEVICE)
    train(plain, cls.for_model(plain, 1e-3, compile=False, **options), range(2))
    assert not uses_kernels
    train(other, cls.for_model(other, 1e-3, compile=True, **options), range(2))
    assert set(uses_kernels) == {options.get("matmul_precision", "highest")}
    for weight, two in zip(plain.parameters(), other.parameters(), strict=True):
        # TF32 is rounded otherwise by torch's products: it shows where m is the small rest of large terms.
        is_narrow = not INTERPRETED and options.get("matmul_precision") == "high"
        torch.testing.assert_close(weight, two, rtol=1e-3, atol=1e-4 if is_narrow else 2e-5)


@pytest.mark.parametrize(
    "options", [{"bf16_stochastic_round": True}, {"master_weights": True, "state_dtype": torch.bfloat16}]
)
def test_a_model_of_bfloat16_is_trained_as_by_torchs_operators(uses_kernels, options):
    plain, other = tiny_gpt2(dtype=torch.bfloat16).to(DEVICE), tiny_gpt2(dtype=torch.bfloat16).to(DEVICE)
    train(plain, AdaPMMini.for_model(plain, 1e-3, compile=False, **options), range(1))
    train(other, AdaPMMini.for_model(other, 1e-3, compile=True, **options), range(1))
    for weight, two in zip(plain.parameters(), other.parameters(), strict=True):
        # Sums in another order may round to the neighbour, one part in 128.
        torch.testing.assert_close(weight, two, rtol=2**-7, atol=1e-6)
