"""A step of AdaPM on an accelerator, counted without one: launches, waiting of the host, bytes moved.

    python -m benchmarks.step_operations
    python -m benchmarks.step_operations --models 124m --json /tmp/operations.json

Weights, gradients and state are on torch's `meta` device, which works nothing out. It is no CPU, so that the step takes
an accelerator's ways, and a value that the host wanted to read is an error: there is none to wait for. An operation is
what torch dispatches and does not only view a tensor, or a launch of one of our kernels (`optim/adapm/kernels.py`);
some of those of linear algebra are several kernels inside. One on lists of tensors (`_foreach_…`) is one launch where
torch's own rules let it be, and else as many as there are tensors. An operation moves each of its operands once, in or
out: what caches hold between operations is not known here. Fused AdamW is one operation, of 28 bytes a float32 weight.
"""

import argparse
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from benchmarks.optimizer_step import CONFIGS, new_model
from benchmarks.result_file import write_result
from optim.adapm import AdaPM, AdaPMMini, compiled, devices, kernels
from optim.adapm.layout import Bucket
from optim.adapm.low_rank import Factors, WarmStart
from optim.adapm.step import _on_device

MODELS = ("124m", "1.5b", "llama-1b")
RESULT = Path("benchmarks/results/step-operations.json")
_ALLOCATES = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"}
_WRITES_ONLY = {"copy_", "_foreach_copy_", "fill_", "zero_"}


@dataclass(kw_only=True)
class Operations:
    """The operations of one step."""

    launches: int = 0
    copies_from_host: int = 0
    """The launches that copy from the host; from memory that is not pinned, which a CUDA graph does not capture."""
    bytes: int = 0
    by_name: Counter[str] = field(default_factory=Counter)

    def add(self, name: str, moved: int, *, launches: int = 1) -> None:
        """Count an operation."""
        self.launches += launches
        self.bytes += moved
        self.by_name[name] += launches


class _CountedOperations(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch publishes no types for it
    """Counts what is done to tensors on `meta`."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # as above
        self.found = Operations()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        # torch has no meta kernel for that one.
        result = None if func is torch.ops.aten._fused_adamw_.tensor_lr else func(*args, **kwargs)
        name = func._schema.name.removeprefix("aten::")
        inputs = _tensors((args, kwargs))
        storages = {tensor.untyped_storage()._cdata for tensor in inputs}
        new = [tensor for tensor in _tensors(result) if tensor.untyped_storage()._cdata not in storages]
        values = [*args, *(kwargs.get(argument.name) for argument in func._schema.arguments[len(args) :])]
        changed = [
            tensor
            for argument, value in zip(func._schema.arguments, values, strict=True)
            if argument.alias_info is not None
            and argument.alias_info.is_write
            and not (name == "_fused_adamw_" and argument.name == "grads")  # which it writes only to unscale them
            for tensor in _tensors(value)
        ]
        written = [tensor for tensor in (*new, *changed) if tensor.is_meta]
        if not written or name in _ALLOCATES:
            return result
        only_writes = name in _WRITES_ONLY or func._schema.overload_name == "out"
        # What is given twice, as X of X X^T, is read once.
        unlike = {
            (tensor.untyped_storage()._cdata, tensor.storage_offset(), *sorted(_layout(tensor))): tensor
            for tensor in inputs
        }
        read = [
            tensor
            for tensor in unlike.values()
            if tensor.is_meta and not (only_writes and any(tensor is other for other in changed))
        ]
        lists = [_tensors(value) for value in args if isinstance(value, list | tuple)]
        launches = len(lists[0]) if name.startswith("_foreach_") and not _are_alike(lists) else 1
        self.found.add(name, sum(_extent(tensor) for tensor in (*read, *written)), launches=launches)
        if name in ("_to_copy", "copy_") and any(not tensor.is_meta for tensor in inputs):
            self.found.copies_from_host += 1
        return result


def count_operations(optimizer: AdaPM) -> Operations:
    """The operations of an ordinary step: none of the first, at a new learning rate, without a refresh of the sketches.

    Args:
        optimizer: Of a model on `meta`, with gradients. If it is capturable, the step is as a CUDA graph repeats it.
    """
    optimizer.allocate_state()
    with as_on_cuda() as counted:
        if optimizer.defaults["capturable"]:
            for group in optimizer.param_groups:
                group["lr"] = torch.full((), group["lr"], device="meta")
            with as_captured(optimizer, captures=False):
                optimizer.step()
            with as_captured(optimizer):
                counted.found = Operations()
                optimizer.step()
            return counted.found
        for _ in range(2):  # what is made at the first, and at the first without a refresh, is kept
            optimizer.step()
        counted.found = Operations()
        _on_device.cache_clear()
        optimizer.step()
    return counted.found


def count_fused_adamw(model: nn.Module) -> Operations:
    """The operations of torch's fused AdamW."""
    weights = [value.detach() for value in model.parameters()]
    gradients, averages, squares = ([torch.empty_like(value) for value in weights] for _ in range(3))
    steps = [torch.zeros((), device="meta")] * len(weights)
    counted = _CountedOperations()
    with counted:
        torch._fused_adamw_(
            weights,
            gradients,
            averages,
            squares,
            [],
            steps,
            lr=1e-3,
            beta1=0.9,
            beta2=0.95,
            weight_decay=0.1,
            eps=1e-8,
            amsgrad=False,
            maximize=False,
        )
    return counted.found


def count_model(model: str) -> dict[str, Operations]:
    """AdaPM, AdaPM-mini and fused AdamW on that model, in float32; TF32 changes none of it."""
    with torch.device("meta"):
        module = new_model(CONFIGS[model])
    for value in module.parameters():
        value.grad = torch.empty_like(value)
    return {
        "adapm": count_operations(AdaPM.for_model(module, 1e-3)),
        "adapm-mini": count_operations(AdaPMMini.for_model(module, 1e-3)),
        "adapm, captured": count_operations(AdaPM.for_model(module, 1e-3, capturable=True)),
        "adamw": count_fused_adamw(module),
    }


def main() -> None:
    """Count, print the table and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    parser.add_argument("--json", type=Path, default=RESULT, help="where to write the figures")
    chosen = parser.parse_args()
    figures: dict[str, object] = {}
    print(f"{'model':<10}{'optimizer':<18}{'launches':>9}{'from host':>11}{'GB':>9}{'× AdamW':>9}")
    for model in chosen.models:
        operations_by_name = count_model(model)
        for name, row in operations_by_name.items():
            ratio = row.bytes / operations_by_name["adamw"].bytes
            print(
                f"{model:<10}{name:<18}{row.launches:>9}{row.copies_from_host:>11}{row.bytes / 1e9:>9.3f}{ratio:>9.3f}"
            )
        figures[model] = {
            name: {**asdict(operations), "by_name": dict(operations.by_name.most_common())}
            for name, operations in operations_by_name.items()
        }
    write_result(chosen.json, "step_operations", {"torch": torch.__version__, "device": "meta", "counted": figures})


@contextmanager
def as_captured(optimizer: AdaPM | None = None, *, captures: bool = True) -> Iterator[None]:
    """A step is told that a CUDA graph captures it, or at least does without what it would read on `meta`.

    Args:
        optimizer: On `meta`, where no counter can be read: it is told that this is step 2.
        captures: Whether a graph does.
    """

    def count(bucket: Bucket) -> int:
        torch._foreach_add_(bucket.counters, 1.0)
        return 2

    with ExitStack() as stack:
        stack.enter_context(patch.object(devices, "is_capturing", lambda: captures))
        if optimizer is not None:
            stack.enter_context(patch.object(Bucket, "count", count))
        yield


@contextmanager
def as_on_cuda() -> Iterator[_CountedOperations]:
    """Count, with `meta` in the place of a CUDA device that has Triton."""
    counted = _CountedOperations()

    def draw(seed: int, step: int, block: str, like: Tensor) -> Tensor:
        return torch.randn(like.shape, device=like.device)  # there are no generators for `meta`

    def move(
        blocks: kernels.Blocks, factors: Factors | None, divisor: Tensor | None, numbers: Tensor, **how: Any
    ) -> None:
        for chosen in kernels._group_by_layout(*(tensors for tensors in blocks if tensors)):
            changed = [
                tensors[index]
                for tensors in (blocks.weights, blocks.averages, blocks.moments)
                if tensors
                for index in chosen
            ]
            gradients = [blocks.gradients[index] for index in chosen]
            read = _tensors((changed, gradients, factors, divisor, numbers))
            counted.found.add("our kernel", sum(_extent(tensor) for tensor in (*read, *changed)))

    def launch_product(
        start: WarmStart | None,
        matrices: Sequence[Tensor] | Tensor,
        products: Tensor | None,
        *,
        sums: Tensor | None = None,
        carried: kernels.Carried | None = None,
        **how: Any,
    ) -> None:
        assert isinstance(matrices, Tensor) or len(kernels._group_by_layout(matrices)) == 1
        given = _tensors((list(start or ()), matrices, carried))
        read = {(tensor.untyped_storage()._cdata, tensor.storage_offset()): tensor for tensor in given}  # X may be Y
        name = "our sums" if start is None else "our inner products" if isinstance(matrices, Tensor) else "our product"
        counted.found.add(name, sum(_extent(tensor) for tensor in (*read.values(), *_tensors((products, sums)))))

    with ExitStack() as stack:
        stack.enter_context(patch.object(compiled, "has_compiler", lambda device_type: True))
        stack.enter_context(patch("optim.adapm.layout._FUSED_DEVICES", ("meta",)))
        for module in ("low_rank", "step"):
            stack.enter_context(patch(f"optim.adapm.{module}.gaussian_sketch", draw))
        stack.enter_context(patch.object(compiled, "kernels_for", lambda device: kernels))
        stack.enter_context(patch.object(kernels, "move", move))
        stack.enter_context(patch.object(kernels, "_launch_product", launch_product))
        yield stack.enter_context(counted)


def _tensors(nested: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(nested) if isinstance(leaf, Tensor)]


def _are_alike(lists: Sequence[Sequence[Tensor]]) -> bool:
    """Whether torch goes through these lists in one launch: one type, without gaps, and laid out alike in each list."""
    tensors = [tensor for members in lists for tensor in members]
    return (
        len({tensor.dtype for tensor in tensors}) == 1
        and all(tensor.is_contiguous() or (tensor.ndim > 1 and tensor.mT.is_contiguous()) for tensor in tensors)
        and all(len({(tensor.shape, tensor.stride()) for tensor in places}) == 1 for places in zip(*lists, strict=True))
    )


def _layout(tensor: Tensor) -> Iterable[tuple[int, int]]:
    return zip(tensor.shape, tensor.stride(), strict=True)


def _extent(tensor: Tensor) -> int:
    """Bytes of a tensor, what is repeated counted once."""
    elements = 1
    for size, stride in _layout(tensor):
        elements *= 1 if stride == 0 and size > 0 else size
    return elements * tensor.element_size()


if __name__ == "__main__":
    main()
