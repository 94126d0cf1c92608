"""AdaPM: Adam with partial momentum (Zhang, Liu, Fang: "AdaPM: a Partial Momentum Algorithm for LLM Training",
arXiv 2510.09103), and AdaPM-mini, its combination with Adam-mini.

Each block of the model keeps as much momentum as it needs (the block plan, `optim/plan`). With G the gradient of a
block and v its second moment:

    momentum   full        m = b1 m + (1 - b1) G                        value blocks, vectors
               low rank    M = b1 L' R' + (1 - b1) G                    query, key and MLP blocks
                           L, R = argmin || L R - M ||_F                `low_rank.py`
                           m = M - b1 / (1 - b1) (L R - M)              the bias correction
                             = G + b1 / (1 - b1) (L' R' - L R)          so computed: M is never formed
               none        m = G                                        embeddings, LM head, attention outputs

    update     u = m / (sqrt(v) + eps)                                  v: `step.py`
               u = clip(u, 1)                                           not where the momentum is full
               W = W - lr (u + weight_decay W)                          lr × 0.75 without momentum

Where the paper leaves room, an option decides; the class docstring names each default and its source. The formulas are
worked out in `step.py`, for groups of like blocks that `layout.py` makes once; this file is the optimizer around them:
planning, saving, loading.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from operator import attrgetter, itemgetter
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import ref

import torch
from torch import Tensor, nn
from torch._compile import _disable_dynamo
from torch.optim.optimizer import ParamsT

from ..closure_step import ClosureStep, check_torch_flags
from ..errors import OptimError, ShardedParametersError
from ..plan.blocks import (
    ADAM_MINI_SECOND_MOMENTS,
    ADAM_SECOND_MOMENTS,
    PAPER_FIRST_MOMENTS,
    Block,
    BlockKind,
    BlockPlan,
    FirstMoment,
    SecondMoment,
)
from ..plan.groups import as_group, as_groups, name_groups, names
from ..plan.modules import plain_name
from ..plan.placement import DEFAULTS, PlanOptions, Rules, Unknown, plan_blocks
from ..plan.sharding import is_distributed, refuse_divided_blocks, refuse_sharded
from . import compiled, devices
from .layout import LAID_OUT_BY, MASTER_WEIGHT, STEP, Layout, Moving, has_master_weight
from .options import OPTIONS, StepOptions, StepSettings, check_options
from .solvers import DENSE_SOLVER
from .step import update, update_fused

if TYPE_CHECKING:
    from typing import Self, Unpack  # in Python since 3.11


class Options(StepOptions, total=False):
    """The keyword options of `AdaPM` beside the learning rate and the model; `AdaPM` has their meaning."""

    plan: BlockPlan | None
    heads: int | None
    rank_ratio: float
    state_dtype: torch.dtype | None
    unknown: Unknown
    rules: Rules
    compile: bool | None
    foreach: bool | None
    fused: bool | None
    maximize: bool
    differentiable: bool


class AdaPM(ClosureStep):
    """Adam with partial momentum: the quality of AdamW, without nine tenths of its momentum.

    `AdaPM(model, lr=6e-4)`, or `for_model` with groups of parameters, plans the blocks from the model's modules.
    `AdaPM(model.named_parameters(), lr=6e-4)` has names and shapes alone to go by, which is enough for common names.

    Args:
        params: The model, of which all that is trainable is trained: a Transformer, or anything whose weights the block
            plan can place; wrapped by `torch.compile`, DDP or Accelerate, or not. Or `model.named_parameters()`, or
            groups of such: names give the blocks.
        lr: Learning rate; tune it as for AdamW (the paper uses AdamW's own).
        model: The model of groups of parameters, which gives their names, and their blocks better than names do.
        plan: The blocks of these parameters, from `optim.plan.placement.plan_blocks`; None to plan them.
        heads: Query heads of every attention: AdaPM-mini needs it to plan by names, AdaPM does not.
        rank_ratio: Rank of low-rank momentum over min(m, n) (paper: 5 %).
        state_dtype: Type of factors and moments; None for the parameter's own, at least float32. `torch.int8` is 8 bits
            per element with scales, of all but vectors (`eight_bit.py`). Arithmetic is in float32 in any case.
        unknown: What becomes of weights that no rule places: full Adam moments and a warning that lists them ("warn"),
            full Adam moments ("full"), or an error ("error").
        rules: What some blocks keep instead of what their kind does; later rules win.
        betas: Decay rates b1 of the momentum and b2 of the second moment, in [0, 1).
        eps: Added to the root of the second moment.
        weight_decay: Decoupled, on matrices; vectors and tables of relative position biases never decay. Scaled by the
            block's learning rate, as in AdamW.
        solver: "subspace" in the place of the paper's algorithm 2 (`solvers.py`); or "svd", exact and slow.
        inner_iterations: Of "subspace", a step; None for 1, which is nearly as good as the exact SVD.
        refresh_interval: Every so many steps the factors' search starts from a fresh Gaussian sketch; 0 for never.
            The paper's "update frequency" T = 100, which it does not define, is taken for it.
        clip: Bound on each element of u (paper, algorithm 1, line 9), on low-rank and momentum-free blocks; None for
            none.
        bias_correction: False takes L R for the momentum: the paper's ablation, clearly worse.
        debias_moments: Adam's 1 - b^t terms, which algorithm 1 does not have.
        momentum_free_lr_scale: Learning-rate factor of blocks that keep no momentum (paper, section 5.1: 0.75).
        seed: Seed of the sketches, and of stochastic rounding.
        master_weights: Keep a float32 copy of weights that are narrower, and round it to them after each step. Else
            what is smaller than half of their spacing is lost: a bfloat16 weight has to move by 2^-9 of itself.
        bf16_stochastic_round: Round bfloat16 weights up or down by chance, so that they follow small updates on
            average, without any state (`rounding.py`). Not with `master_weights`.
        matmul_precision: Of products with the gradient, and on CUDA of factors: "highest" is as exact as float32 (our
            kernel takes three products in TF32), "high" is TF32, "medium" bfloat16 on CPUs that have it and TF32 on
            CUDA, and None what `torch.set_float32_matmul_precision` says, "highest" unless it is called. All other
            arithmetic is IEEE float32.
        compile: True moves large blocks by code that is compiled at the first step: on CUDA all matrices by our kernel
            (`kernels.py`), on a CPU float32 ones by C; False does not; None decides by device and model
            (`compiled.py`). Weights agree to rounding.
        capturable: As torch has it: a CUDA graph may capture a step, once some have been taken outside. The counter and
            a learning rate that is a tensor are read on the device. Sketches are refreshed outside of graphs alone, at
            the steps that are due: the step of a loop's index i where i is a multiple of `refresh_interval`.
        foreach, fused: Taken as torch's optimizers do, and without effect: like blocks always move together.
        maximize, differentiable: Only False; what to do instead, the error says.

    Raises:
        ValueError: an option is out of its bounds, the parameters have no names, or one of them is not in the plan.
        UnplacedWeightsError: names the weights that need `heads`, or with unknown="error" those that no rule places.
        RuleError: a rule fits no block, or asks of one what it cannot keep.
        ShardedParametersError: parameters are sharded, now or at the first step, in a way that this cannot train:
            FSDP1, ZeRO-3, a dimension that is divided twice unevenly or inside of which blocks end, or any way with
            solver="svd" or capturable=True.
    """

    first_moments: ClassVar[Mapping[BlockKind, FirstMoment]] = PAPER_FIRST_MOMENTS
    second_moments: ClassVar[Mapping[BlockKind, SecondMoment]] = ADAM_SECOND_MOMENTS
    plan: BlockPlan
    _layout: Layout | None = None
    """The layout of the last step."""
    _model: "ref[nn.Module] | None" = None
    """The model, for parameters that are added later; copies do without."""

    def __init__(
        self,
        params: ParamsT | nn.Module,
        lr: float | Tensor,
        *,
        model: nn.Module | None = None,
        plan: BlockPlan | None = None,
        heads: int | None = None,
        rank_ratio: float = 0.05,
        state_dtype: torch.dtype | None = None,
        unknown: Unknown = "warn",
        rules: Rules = (),
        betas: tuple[float, float] = (0.9, 0.95),
        eps: float = 1e-8,
        weight_decay: float = 0.1,
        solver: str = "subspace",
        inner_iterations: int | None = None,
        refresh_interval: int = 100,
        clip: float | None = 1.0,
        bias_correction: bool = True,
        debias_moments: bool = False,
        momentum_free_lr_scale: float = 0.75,
        seed: int = 0,
        master_weights: bool = False,
        bf16_stochastic_round: bool = False,
        matmul_precision: str | None = None,
        compile: bool | None = None,
        foreach: bool | None = None,
        fused: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        arguments = locals()
        check_torch_flags(type(self).__name__, arguments, taken=("capturable",))
        planning = PlanOptions(rank_ratio=rank_ratio, state_dtype=state_dtype, unknown=unknown, rules=rules)
        if plan is not None and (heads is not None or not planning.items() <= DEFAULTS.items()):
            raise ValueError("heads, rank_ratio, state_dtype, unknown and rules make a plan; give them to plan_blocks")
        groups = as_groups(params)
        if isinstance(params, nn.Module):
            model = params
        elif model is not None:
            name_groups(model, groups)
        self._model = None if model is None else ref(model)
        self._heads, self._planning = heads, planning if plan is None else None
        self.plan = self._plan(dict(names(groups))) if plan is None else plan
        self.compile = compile
        self._group_names: list[tuple[str, ...]] = []
        super().__init__(groups, {option: arguments[option] for option in OPTIONS})

    @classmethod
    def for_model(
        cls, model: nn.Module, lr: float | Tensor, *, params: ParamsT | None = None, **options: "Unpack[Options]"
    ) -> "Self":
        """Plan the trainable parameters of a model and build the optimizer on them.

        Args:
            model: As for the constructor.
            lr: Learning rate.
            params: Groups of the model's parameters, with names or without, each with its own options: those of
                nanoGPT or Hugging Face, for example. None for all that are trainable, in one group.
            options: Those of the constructor.

        Raises:
            ValueError: a parameter of `params` is not the model's; else as the constructor.
        """
        return cls(model if params is None else params, lr, model=model, **options)

    @_disable_dynamo  # as torch's own optimizers do
    def _update_all(self) -> None:
        every = [parameter for group in self.param_groups for parameter in group["params"]]
        parameters = [parameter for parameter in every if parameter.grad is not None]
        moving: list[Tensor] = [parameter.grad for parameter in parameters]
        if not moving:
            return
        if devices.is_capturing():
            self._refuse_capture_of_host_numbers()
        layout = self._layout_of(parameters, moving)
        with devices.exact_products(moving[0].device) as precision:
            layout.follow_weights()
            for bucket in layout.buckets:
                counter = bucket.counter if bucket.options["capturable"] else None
                settings = StepSettings(bucket.options, bucket.count(), precision=precision, counter=counter)
                for group in bucket.fused:
                    update_fused(group, moving, settings)
                for unit in bucket.units:
                    update(unit, moving, settings)
            layout.write_back()

    def _layout_of(self, parameters: Sequence[Tensor], gradients: Sequence[Tensor]) -> Layout:
        """Return the layout of this step: the last one, unless it has changed."""
        if any(map(attrgetter("is_sparse"), gradients)):
            named = chain.from_iterable(map(self._parameters_by_name, self.param_groups))
            name = next(name for name, value in named if value.grad is not None and value.grad.is_sparse)
            raise RuntimeError(
                f"{type(self).__name__} does not support sparse gradients, and {name} has one; "
                f"build its nn.Embedding with sparse=False"
            )
        for group in self.param_groups:
            if not all(0.0 <= beta < 1.0 for beta in group["betas"]):  # a schedule may have set them
                raise ValueError(f"Invalid betas: {group['betas']!r}; they must be two numbers in [0, 1)")
        identity = self._identity(parameters)
        if self._layout is not None and self._layout.identity == identity and self._layout.counts_alone():
            return self._layout
        if devices.is_capturing():
            raise RuntimeError(
                f"take three steps of {type(self).__name__} with all gradients before a CUDA graph captures one: the "
                f"first of a training, or after loading a state, make what later ones use, and compile their kernels"
            )
        self._layout = None  # and with it views of what may go
        layout = self._layout = self._lay_out(moves=lambda parameter: parameter.grad is not None)
        layout.identity = self._identity(parameters)
        return layout

    def _identity(self, parameters: Sequence[Tensor]) -> list[object]:
        """Return the facts that a layout goes by: options, the parameters that move, and where all tensors lie."""
        tensors: list[Tensor] = [*parameters, *chain.from_iterable(map(dict.values, self.state.values()))]
        if not {*map(type, tensors)} <= {Tensor, nn.Parameter}:
            tensors = [tensor._local_tensor if is_distributed(tensor) else tensor for tensor in tensors]
        addresses = map(Tensor.data_ptr, tensors)  # `.data` puts others under a tensor
        options = map(itemgetter(*LAID_OUT_BY), self.param_groups)
        return [self.compile, *map(id, self.param_groups), *options, *map(id, parameters), *addresses]

    def _lay_out(self, *, moves: Callable[[Tensor], bool]) -> Layout:
        moving: list[Moving] = []
        self._plan_new_parameters()
        for group in self.param_groups:
            named = [(name, value) for name, value in self._parameters_by_name(group) if moves(value)]
            self._check_parameters(group, named)
            moving += [Moving(group, name, parameter, self.state[parameter]) for name, parameter in named]
        device = moving[0].parameter.device if moving else torch.device("cpu")
        compiles = compiled.should_compile(self.compile, sum(self.plan.elements.values()), device)
        return Layout(self.plan, moving, compiles=compiles)

    def _refuse_capture_of_host_numbers(self) -> None:
        name = type(self).__name__
        for group in self.param_groups:
            if not group["capturable"]:
                raise RuntimeError(f"a CUDA graph can capture a step of {name} only with capturable=True")
            lr = group["lr"]
            if isinstance(lr, Tensor) and lr.is_cpu and not all(value.is_cpu for value in group["params"]):
                raise RuntimeError(f"a learning rate on the CPU is not read by a CUDA graph; give {name} one there")

    def allocate_state(self) -> None:
        """Allocate the state of every parameter now instead of at its first gradient; `meta` parameters included."""
        self._lay_out(moves=lambda parameter: True)

    def names_without_gradient(self) -> list[str]:
        """Return the names of trainable parameters that have had no gradient so far: idle experts, for example."""
        return [
            name
            for group in self.param_groups
            for name, parameter in self._parameters_by_name(group)
            if parameter.requires_grad and not self.state.get(parameter, {}).get(STEP, 0)
        ]

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of named parameters, as `torch.optim.Optimizer` does.

        They must be in the plan, if the optimizer was given one; else they are planned from the model, or by names.
        Parameters that were there before keep their blocks.
        """
        name = type(self).__name__
        if self._planning is not None:
            for option, value in {**self._planning, "heads": self._heads}.items():
                if param_group.get(option, value) != value:
                    raise ValueError(
                        f"a group of parameters has no {option} of its own: give {param_group[option]!r} to the "
                        f"optimizer, or say what single blocks keep by rules=[Rule(pattern, …)]"
                    )
        check_options({**self.defaults, **param_group})
        check_torch_flags(name, param_group, taken=("capturable",))
        super().add_param_group(as_group(param_group))
        group = self.param_groups[-1]
        try:
            if "param_names" not in group:
                raise ValueError(
                    f"{name} finds blocks by name; give it the model, model.named_parameters(), or groups of "
                    f"parameters by for_model(model, params=..., ...). In a Trainer of transformers: "
                    f"optimizers=({name}(model, lr=...), None), or optimizer_cls_and_kwargs=({name}, "
                    f'{{"lr": ..., "model": model}}). In Lightning, its CLI too: return {name}(self, lr=...) from '
                    f"configure_optimizers. In a recipe of torchtune: from _setup_optimizer"
                )
            group["param_names"] = [plain_name(parameter) for parameter in group["param_names"]]
            self._group_names.append(tuple(group["param_names"]))
            counts = Counter(chain.from_iterable(self._group_names))
            if doubles := [parameter for parameter, times in counts.items() if times > 1]:
                raise ValueError(
                    f"two parameters are called {doubles[0]}; build an optimizer for each model, or put the models "
                    f"into one module (nn.ModuleDict) and give its named_parameters()"
                )
            self._plan_new_parameters()
            self._check_parameters(group, [*self._parameters_by_name(group)])
            blocks = [block for name in group["param_names"] for block in self.plan.parameter_blocks.get(name, ())]
            if param_group.get("weight_decay") and blocks and not any(block.decays for block in blocks):
                raise ValueError(
                    f"a group asks for weight_decay={group['weight_decay']!r} and has vectors alone "
                    f"({_listing(group['param_names'])}), which {name} never decays; give it weight_decay=0"
                )
        except (ValueError, OptimError):
            self.param_groups.pop()
            del self._group_names[len(self.param_groups) :]
            raise

    def state_dict(self) -> dict[str, Any]:
        """Return the state like torch's; state that processes hold parts of is a `DTensor`, and all of them must take
        part."""
        saved = super().state_dict()
        for identity, name, parameter, _ in self._saved_parameters(saved):
            if is_distributed(parameter) and identity in saved["state"]:
                whole = dict(saved["state"][identity])
                for key, block, state_name in self._state_keys(name):
                    whole[key] = _sharded_state().as_whole(whole[key], block, state_name, parameter)
                saved["state"][identity] = whole
        return saved

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load what `state_dict` gave, by the names that were saved with it.

        Hooks of `register_load_state_dict_pre_hook` see it first.

        Raises:
            ValueError: it is of other parameters or of another plan; nothing has changed then.
        """
        ordered: dict[str, Any] = {}

        def put_in_order(_: torch.optim.Optimizer, state: dict[str, Any]) -> dict[str, Any]:
            ordered.update(state, param_groups=self._in_own_order(state["param_groups"]))
            self._check_saved_state(ordered)
            return ordered

        handle = self.register_load_state_dict_pre_hook(put_in_order)  # behind those that are there
        try:
            super().load_state_dict(state_dict)  # which lets go of the layout, by `__setstate__`
        finally:
            handle.remove()
        # torch has cast the state to the parameter's type, which would round float32 state of bfloat16 parameters.
        for identity, name, parameter, group in self._saved_parameters(ordered):
            saved, state = ordered["state"].get(identity, {}), self.state.get(parameter, {})
            if STEP in state:
                state[STEP] = state[STEP].to(parameter.device if group["capturable"] else "cpu", torch.float32)
            if MASTER_WEIGHT in saved:
                value = saved[MASTER_WEIGHT]
                if is_distributed(parameter) or is_distributed(value):
                    value = _sharded_state().divide_like(value, parameter)
                state[MASTER_WEIGHT] = value.to(device=parameter.device, dtype=torch.float32)
            for key, block, state_name in self._state_keys(name):
                if key in saved:
                    value = saved[key]
                    if is_distributed(parameter) or is_distributed(value):
                        value = _sharded_state().part_of(value, block, state_name, parameter)
                    state[key] = value.to(device=parameter.device, dtype=block.state_dtypes[state_name])

    def _in_own_order(self, saved_groups: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the saved groups with this optimizer's names, and their parameters in its order, by saved names if
        they have any."""
        counts, own_counts = ([len(group["params"]) for group in every] for every in (saved_groups, self.param_groups))
        saved_places = {
            plain_name(name): (index, identity)
            for index, group in enumerate(saved_groups)
            for name, identity in zip(group.get("param_names", ()), group["params"], strict=False)
        }
        has_names = [len(group.get("param_names", ())) for group in saved_groups] == counts
        places = {name: index for index, own_names in enumerate(self._group_names) for name in own_names}
        if has_names:
            if new := sorted(places.keys() - saved_places.keys()):
                raise ValueError(
                    f"the state to load has nothing for {_listing(new)}; were they frozen when it was saved? Then load "
                    f"it while they still are, thaw them, and give them to add_param_group"
                )
            if extra := sorted(saved_places.keys() - places.keys()):
                raise ValueError(
                    f"the state to load has {_listing(extra)}, which this optimizer does not train; build it with "
                    f"them, or take them out of the state in a hook of register_load_state_dict_pre_hook"
                )
        if counts != own_counts:
            raise ValueError(f"the state to load has groups of {counts} parameters, this optimizer of {own_counts}")
        if has_names and (moved := sorted(name for name in places if saved_places[name][0] != places[name])):
            raise ValueError(f"the state to load has {_listing(moved)} in another group; build the same groups")
        return [
            {
                **saved,
                "params": [saved_places[name][1] for name in own_names] if has_names else saved["params"],
                "param_names": [*own_names],
                "capturable": own["capturable"],  # whether graphs capture a step is no part of a training
            }
            for saved, own, own_names in zip(saved_groups, self.param_groups, self._group_names, strict=True)
        ]

    def __getstate__(self) -> dict[str, Any]:
        """Return what is pickled: a view would take the memory of its whole group with it."""
        names = ("plan", "compile", "_heads", "_planning", "_group_names")
        state = defaultdict[Tensor, dict[str, Tensor]](dict)
        for parameter, kept in self.state.items():
            state[parameter] = {key: value.clone() for key, value in kept.items()}
        return {**super().__getstate__(), "state": state, **{name: getattr(self, name) for name in names}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._layout = None

    def _plan(self, parameters: Mapping[str, Tensor]) -> BlockPlan:
        """Return the plan of the model; without one, of these parameters by their names."""
        model = None if self._model is None else self._model()
        moments = PlanOptions(first_moments=self.first_moments, second_moments=self.second_moments)
        options = PlanOptions(**(self._planning or {}), **moments)
        return plan_blocks(parameters, heads=self._heads, **options) if model is None else plan_blocks(model, **options)

    def _plan_new_parameters(self) -> None:
        """Give blocks to the parameters that the plan lacks: added or thawed since it was made."""
        parameters = {name: value for every in self.param_groups for name, value in self._parameters_by_name(every)}
        planned = self.plan.parameter_blocks
        if self._planning is not None and any(
            value.requires_grad and name not in planned for name, value in parameters.items()
        ):
            blocks = self._plan(parameters)
            self.plan = BlockPlan(
                (*self.plan, *(block for block in blocks if block.parameter in parameters.keys() - planned.keys()))
            )

    def _state_keys(self, name: str) -> Iterator[tuple[str, Block, str]]:
        """Yield (key, block, state name of the block) of every state tensor of that parameter's blocks."""
        for block in self.plan.parameter_blocks.get(name, ()):
            for state_name in block.state_shapes:
                yield block.key(state_name), block, state_name

    def _check_parameters(self, group: Mapping[str, Any], named: Sequence[tuple[str, Tensor]]) -> None:
        """Raise for parameters that no step is for: when they are added, and before any moves, by when they may have
        become so."""
        cls = type(self).__name__
        refuse_sharded(named, cls, by_parts=True)
        for name, parameter in named:
            if not parameter.is_floating_point():
                raise ValueError(f"{name} is {parameter.dtype}; only real floating-point parameters are trained")
            if group["bf16_stochastic_round"] and parameter.dtype is torch.float16:
                raise ValueError(
                    f"bf16_stochastic_round rounds bfloat16 weights, and {name} is float16; take master_weights"
                )
            if is_distributed(parameter):
                if group["solver"] == DENSE_SOLVER or group["capturable"]:
                    raise ShardedParametersError(
                        f"solver={DENSE_SOLVER!r} and capturable=True need whole matrices, and FSDP2 or tensor "
                        f"parallelism has split {name}; take subspace, and leave optimizer.step() outside the graph"
                    )
                refuse_divided_blocks(self.plan.parameter_blocks.get(name, ()), parameter, cls)
            if parameter.requires_grad and name not in self.plan.parameter_blocks:
                raise ValueError(f"{name} is not in the block plan; plan the model that holds it, before freezing any")
            # Torch's kernels would read beyond the state of one that has grown.
            if parameter.numel() not in (0, self.plan.elements.get(name, parameter.numel())):
                raise ValueError(
                    f"{name} is {tuple(parameter.shape)}, another size than when {cls} was built; "
                    f"build it after the model has its final shapes (resize_token_embeddings, pruning)"
                )

    def _parameters_by_name(self, group: Mapping[str, Any]) -> Iterator[tuple[str, Tensor]]:
        """Yield (name, parameter) of a group, by the names given at construction.

        Not by its `param_names`: `ZeroRedundancyOptimizer` copies what groups say from one process to another.
        """
        index = next(index for index, candidate in enumerate(self.param_groups) if candidate is group)
        yield from zip(self._group_names[index], group["params"], strict=True)

    def _saved_parameters(self, state_dict: dict[str, Any]) -> Iterator[tuple[int, str, Tensor, dict[str, Any]]]:
        """Yield (identity in the saved state, name, parameter, its saved group), in the order of both."""
        for saved, group in zip(state_dict["param_groups"], self.param_groups, strict=True):
            for identity, (name, parameter) in zip(saved["params"], self._parameters_by_name(group), strict=True):
                yield identity, name, parameter, saved

    def _check_saved_state(self, state_dict: dict[str, Any]) -> None:
        # Not `defaults`, to which torch adds a key of its own whenever a state is loaded.
        lacking = sorted({option for group in state_dict["param_groups"] for option in OPTIONS if option not in group})
        if lacking:
            raise ValueError(f"the state to load is of another optimizer: it lacks {', '.join(lacking)}")
        for group in state_dict["param_groups"]:
            check_options(group)
        for identity, name, parameter, group in self._saved_parameters(state_dict):
            if identity not in state_dict["state"]:
                continue
            tensors = state_dict["state"][identity]
            shapes = {key: tuple(value.shape) for key, value in tensors.items() if key != STEP}
            expected = {key: block.state_shapes[state_name] for key, block, state_name in self._state_keys(name)}
            if has_master_weight(group, parameter):
                expected[MASTER_WEIGHT] = tuple(parameter.shape)
            if shapes != expected:
                raise ValueError(
                    f"the state to load for {name} is {shapes}, but this plan keeps {expected}; "
                    f"build the optimizer with the model, class, rank_ratio and state_dtype that saved it"
                )


class AdaPMMini(AdaPM):
    """AdaPM with Adam-mini's second moment: one value per row, head or output neuron instead of one per parameter.

    Some 5 % of AdamW's state. Everything else, options included, is `AdaPM`'s.
    """

    second_moments = ADAM_MINI_SECOND_MOMENTS


def _listing(names: Sequence[str], limit: int = 6) -> str:
    remainder = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + remainder


def _sharded_state() -> ModuleType:
    """Import the module only for a `DTensor`, because torch.distributed.tensor takes a second."""
    from . import sharded_state

    return sharded_state
