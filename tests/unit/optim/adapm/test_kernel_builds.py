"""The Triton kernel without a GPU: interpreted, and compiled for GPUs that are not here."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from optim.adapm import compiled

triton = pytest.importorskip("triton", reason="Triton is for Linux")


@pytest.mark.timeout(1200)  # half a minute of processor time, of which a busy machine gives it little
def test_the_interpreter_finds_what_torch_finds():
    """In a process of its own: the interpreter takes the place of Triton's compiler in the whole process."""
    tests = Path(__file__).with_name("test_kernels.py")
    process = subprocess.run(
        [sys.executable, "-m", "pytest", str(tests), "-m", "triton", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"],
        env={**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stdout[-6000:] + process.stderr[-2000:]
    assert " passed" in process.stdout


def build_for(
    capability: int,
    kernel: Any,
    constants: dict[str, Any],
    types: dict[str, str],
    *,
    unaligned: str,
    warps: int,
    stages: int = 2,
) -> Any:
    """Compile a kernel to machine code; all it is given is aligned but for floats and what is named so."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource
    from triton.compiler import compile as build

    names = [parameter.name for parameter in kernel.params]
    signature = {name: "constexpr" if name in constants else types.get(name, "i32") for name in names}
    aligned = {
        (index,): [["tt.divisibility", 16]]
        for index, name in enumerate(names)
        if signature[name] not in ("constexpr", "fp32") and (not unaligned or unaligned not in name)
    }
    return build(
        ASTSource(kernel, signature, {(names.index(name),): value for name, value in constants.items()}, aligned),
        target=GPUTarget("cuda", capability, 32),
        options={"num_warps": warps, "num_stages": stages},
    )


def stack_bytes(kernel: Any, folder: Path) -> int:
    """Return the bytes that a thread keeps in memory, spilled registers above all; PTX does not show them, because it
    has no limit of registers."""
    binary = folder / "kernel.cubin"
    binary.write_bytes(kernel.asm["cubin"])
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    output = subprocess.run([tool, "-res-usage", binary], capture_output=True, text=True, check=True).stdout
    (size,) = re.findall(r"STACK:(\d+)", output)
    return int(size)


@pytest.fixture
def kernels(tmp_path, monkeypatch):
    """The kernels, compiled without what an earlier test left."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    from optim.adapm import kernels

    return kernels


FLOAT32, INT32 = triton.language.float32, triton.language.int32
MOVE: dict[str, object] = {
    **dict.fromkeys(("WEIGHT", "GRADIENT", "STATE"), FLOAT32),
    "BY_CHANCE": False,
    "PRECISION": "tf32x3",
    "INDEX": INT32,
    "IS_ALIGNED": True,
}
"""The constants of a block of float32 at the usual precision."""
_FLOATS = ("left", "right", "divisor", "numbers")
_POINTERS = {"table": "*i64", **dict.fromkeys(_FLOATS, "*fp32")}


@pytest.mark.parametrize(
    ("capability", "kind"),
    [
        (80, {"V": "element", "WEIGHT": triton.language.bfloat16, "BY_CHANCE": True}),
        (90, {"V": "element", "WEIGHT": triton.language.bfloat16, "BY_CHANCE": True}),
        (90, {"HAS_AVERAGE": True, "V": "row"}),
        (100, {"V": "given", "PRECISION": "tf32"}),
    ],
    ids=["80 low rank by chance", "90 low rank by chance", "90 full with v by rows", "100 low rank in TF32"],
)
def test_it_is_compiled_for_gpus_that_are_not_here(tmp_path, kernels, capability: int, kind: dict[str, Any]):
    """To machine code; nothing spills, and tiles are read 16 bytes at a time."""
    has_product = "HAS_AVERAGE" not in kind
    tile_rows, tile_columns = kernels._tile(768, 3072, is_product=has_product)
    constants: dict[str, object] = {
        **MOVE,
        "HAS_AVERAGE": False,
        **kind,
        "TILE_ROWS": tile_rows,
        "TILE_COLUMNS": tile_columns,
        "TILE_DEPTH": kernels._LOW_RANK_DEPTH,
        # What Triton itself makes of steps of 1 and of tensors that are None.
        **dict.fromkeys(("weight_column", "gradient_column"), 1),
        **dict.fromkeys(() if has_product else ("left", "right")),
        **({} if kind["V"] == "given" else {"divisor": None}),
    }
    warps = kernels._LOW_RANK_WARPS if has_product else kernels._WARPS
    stages = kernels._STAGES
    kernel = build_for(capability, kernels._move, constants, _POINTERS, unaligned="place", warps=warps, stages=stages)
    assert kernel.asm["cubin"]
    assert "ld.global.v4" in kernel.asm["ptx"]
    assert stack_bytes(kernel, tmp_path) == 0


@pytest.mark.parametrize(
    ("rows", "columns", "turned"), [(1, 300, False), (2, 3000, True), (9, 3000, False), (3, 7, True)]
)
def test_all_threads_have_read_a_value_before_one_writes_it(kernels, rows, columns, turned):
    """Where fewer values than threads are read, several threads read each, and one of them writes it."""
    tile_rows, tile_columns = kernels._tile(rows, columns, is_product=False)
    for v in ("row", "element"):
        constants: dict[str, object] = {
            **MOVE,
            "HAS_AVERAGE": True,
            "V": v,
            "TILE_DEPTH": 16,
            "TILE_ROWS": tile_rows,
            "TILE_COLUMNS": tile_columns,
            **dict.fromkeys(("weight_column", "gradient_row" if turned else "gradient_column"), 1),
            **dict.fromkeys(("left", "right", "divisor")),
        }
        kernel = build_for(90, kernels._move, constants, _POINTERS, unaligned="_", warps=kernels._WARPS)
        read_before: dict[str, int] = {}
        barriers = 0
        for line in kernel.asm["ttgir"].splitlines():
            barriers += "ttg.barrier" in line
            for shape in re.findall(r"= tt.load .*tensor<([x\d]+)x!tt", line):
                read_before[shape] = barriers
            for shape in re.findall(r"tt.store .*tensor<([x\d]+)x!tt", line):
                is_read_once = torch.Size(map(int, shape.split("x"))).numel() >= 32 * kernels._WARPS
                assert is_read_once or read_before[shape] < barriers


@pytest.mark.parametrize(
    ("capability", "turned", "precision", "has_sketch"),
    [
        (80, False, "tf32", True),
        (90, True, "tf32x3", True),
        (90, False, "tf32x3", True),
        (100, True, "tf32", False),
    ],
)
def test_thin_products_are_compiled_to_tensor_cores(tmp_path, kernels, capability, turned, precision, has_sketch):
    constants = {
        "TYPE": FLOAT32,
        "INDEX": INT32,
        "IS_ALIGNED": True,
        "TILE_ROWS": 128,
        "TILE": kernels._PRODUCT_TILE,
        "TILE_SUMMED": kernels._PRODUCT_SUMMED,
        "step" if turned else "step_summed": 1,
        "rows_column": 1,
        "PRECISION": precision,
        "matrices": None,
        **({} if has_sketch else {"inverse": None, "sketch": None}),
    }
    floats = ("rows", "inverse", "sketch", "products", "sums", "coefficients", "thin")
    types = {"table": "*i64", "weight": "fp32", **dict.fromkeys(floats, "*fp32")}
    options = {"warps": kernels._PRODUCT_WARPS, "stages": kernels._PRODUCT_STAGES}
    kernel = build_for(capability, kernels._multiply, constants, types, unaligned="", **options)
    assert kernel.asm["cubin"]
    assert "mma" in kernel.asm["ptx"], "wgmma, tcgen05.mma or mma.sync"
    assert stack_bytes(kernel, tmp_path) == 0


@pytest.mark.parametrize(
    ("capability", "turned", "kind"),
    [(80, False, "through factors"), (90, True, "gram"), (90, False, "through factors"), (100, True, "gram")],
)
def test_inner_products_are_compiled(tmp_path, kernels, capability, turned, kind):
    """To tensor cores, in float64 as well where they have it, without spilling."""
    is_gram = kind == "gram"
    constants = {
        "TYPE": FLOAT32,
        "INDEX": INT32,
        "IS_ALIGNED": False,
        "TILE_ROWS": kernels._INNER_TILE,
        "TILE": kernels._INNER_TILE,
        "TILE_SUMMED": kernels._PRODUCT_SUMMED,
        "PRECISION": "tf32x3",
        **dict.fromkeys(("rows_row", "step") if turned else ("rows_column", "step_summed"), 1),
        **dict.fromkeys(("table", "sums", "coefficients", "thin")),
        **({"inverse": None, "sketch": None} if is_gram else {}),
    }
    types = {
        **dict.fromkeys(("rows", "inverse", "sketch", "matrices"), "*fp32"),
        "weight": "fp32",
        "products": "*fp64" if is_gram else "*fp32",
    }
    kernel = build_for(capability, kernels._multiply, constants, types, unaligned="", warps=kernels._INNER_WARPS)
    assert kernel.asm["cubin"]
    assert "mma" in kernel.asm["ptx"] or (is_gram and capability == 100), "there it has none for float64"
    assert stack_bytes(kernel, tmp_path) == 0


def test_places_beyond_two_billion_are_counted_in_64_bits():
    from optim.adapm import kernels

    def index_type(*sizes: tuple[int, ...]) -> object:
        return kernels._index_type([torch.empty(size, device="meta") for size in sizes])

    tl = triton.language
    assert index_type((2**15, 2**16 - 1)) is tl.int32
    assert index_type((2**15, 2**16 + 1)) is tl.int64
    assert index_type((4, 4), (2**16, 2**15 + 1)) is tl.int64, "of factors or state alone"
    assert index_type((500, 2**15, 2**10)) is tl.int32, "the places of 500 blocks are in 64 bits anyway"
    assert kernels._index_type([torch.empty(2**16, 2**16, device="meta")[:, :4]]) is tl.int64, "of a slice with gaps"


def test_it_is_for_cuda_alone(monkeypatch):
    assert compiled.kernels_for(torch.device("cpu")) is None
    monkeypatch.setattr(compiled, "has_compiler", lambda device_type: False)
    assert compiled.kernels_for(torch.device("cuda", 7)) is None


def test_where_it_does_not_run_it_is_said_and_not_used(monkeypatch):
    from optim.adapm import kernels

    def fail(device: torch.device) -> None:
        raise RuntimeError("Failed to find C compiler")

    monkeypatch.setattr(compiled, "has_compiler", lambda device_type: True)
    monkeypatch.setattr(kernels, "try_on", fail)
    with pytest.warns(UserWarning, match="cuda:6.*Failed to find C compiler"):
        assert compiled.kernels_for(torch.device("cuda", 6)) is None
