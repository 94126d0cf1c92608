"""The baselines' callables that the catalog names: each takes a model, a learning rate and its entry's options.

All decay alike: matrices by a decoupled weight decay, vectors never. Libraries are imported where they are needed.
"""

from collections.abc import Callable, Mapping
from typing import Any, cast

import torch
from torch import nn

from ..adapm import AdaPM, AdaPMMini
from ..baselines.adam_mini import AdamMini
from ..baselines.adapters import BETAS, DecoupledSGD, complete_class
from ..baselines.ademamix import AdEMAMix
from ..baselines.adopt import Adopt
from ..baselines.apollo import Apollo
from ..baselines.asgd import AcceleratedSGD
from ..baselines.galore import Fira, GaLore, GoLore
from ..baselines.mars import Mars
from ..baselines.muon import Muon, NorMuon
from ..baselines.per_parameter import PerParameterOptimizer
from ..baselines.scale import Scale
from ..baselines.shampoo import Shampoo
from ..errors import UnplacedWeightsError
from ..plan.blocks import BlockKind
from ..plan.groups import Group, Weight, decay_groups, drop_empty_groups, matrix_groups, params, weights

# The devices on which torch has a fused AdamW that needs no extra care. It is the honest baseline for speed: on a CPU
# some six times faster than the foreach one.
_FUSED_DEVICES = frozenset({"cpu", "cuda"})


Factory = Callable[..., torch.optim.Optimizer]


def _join_betas(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a class, whose `betas` are several options of an entry: an option is a scalar."""
    other_options = {name: value for name, value in options.items() if name not in BETAS}
    betas = tuple(options[name] for name in BETAS if name in options)
    return {**other_options, "betas": betas} if betas else other_options


def _planned(cls: type[AdaPM]) -> Factory:
    """Return a factory that builds that class, by its block plan, on every trainable parameter of a model."""

    def factory(model: nn.Module, *, lr: float, state_dtype: str | None = None, **options: Any) -> AdaPM:
        dtype = None if state_dtype is None else cast("torch.dtype", getattr(torch, state_dtype))
        return cls.for_model(model, lr, state_dtype=dtype, **_join_betas(options))

    return factory


def _decaying(make: Factory, decay: str = "weight_decay") -> Factory:
    """Return a factory that builds that optimizer in two groups: matrices decay by the option of that name."""

    def factory(model: nn.Module, *, lr: float, weight_decay: float, **options: Any) -> torch.optim.Optimizer:
        return make(decay_groups(model, weight_decay, decay), lr=lr, **_join_betas(options))

    return factory


def _library_factory(name: str, *, decays: bool = True, matrices: bool = False, plain_root: bool = False) -> Factory:
    """Return a factory that builds that class of `pytorch_optimizer` with the missing parts.

    Args:
        name: The class.
        decays: Whether it has a decoupled decay.
        matrices: Whether its formulas are for matrices.
        plain_root: Whether to leave nothing but v inside the root.
    """
    decay = "weight_decay" if decays else "decoupled_weight_decay"

    def factory(model: nn.Module, *, lr: float, weight_decay: float, **options: Any) -> torch.optim.Optimizer:
        optimizer_class = complete_class(name, decay=not decays, matrices=matrices, plain_root=plain_root)
        groups = decay_groups(model, weight_decay, decay, stacks=matrices)
        return optimizer_class(groups, lr=lr, **_join_betas(options))

    return factory


def _without_lists(factory: Factory) -> Factory:
    """Return the same, which on a CPU works on one tensor at a time: there lists of tensors save no launch, and their
    temporaries are as large as the model, mapped anew at each step."""

    def factory_by_device(model: nn.Module, **options: Any) -> torch.optim.Optimizer:
        on_cpu = all(value.is_cpu for value in model.parameters())
        return factory(model, foreach=False if on_cpu else None, **options)

    return factory_by_device


adapm, adapm_mini, adam_mini = _planned(AdaPM), _planned(AdaPMMini), _planned(AdamMini)
sgd = _decaying(DecoupledSGD, "decoupled_weight_decay")
asgd, ademamix, adopt = _decaying(AcceleratedSGD), _decaying(AdEMAMix), _decaying(Adopt)
lion, signsgd = _without_lists(_library_factory("Lion")), _without_lists(_library_factory("SignSGD"))
schedule_free_adamw = _without_lists(_library_factory("ScheduleFreeAdamW", plain_root=True))
came, soap = _library_factory("CAME", matrices=True), _library_factory("SOAP", matrices=True)
sm3 = _library_factory("SM3", matrices=True, decays=False)


def adamw(model: nn.Module, *, lr: float, weight_decay: float, **options: Any) -> torch.optim.AdamW:
    """Return torch's fused AdamW. Matrices decay and vectors do not, as for AdaPM, so that the two compare."""
    groups = decay_groups(model, weight_decay)
    fused = all(value.device.type in _FUSED_DEVICES for group in groups for value in group["params"])
    return torch.optim.AdamW(groups, lr=lr, fused=fused or None, **_join_betas(options))


def nesterov(model: nn.Module, *, momentum: float, **options: Any) -> torch.optim.Optimizer:
    """Return SGD with Nesterov's momentum."""
    return sgd(model, momentum=momentum, nesterov=momentum > 0.0, **options)


def adafactor(model: nn.Module, *, beta1: float, **options: Any) -> torch.optim.Optimizer:
    """Return Adafactor with momentum, its steps relative to each parameter's size and lr in place of 1 / sqrt(t).

    Decay is relative as well, W <- W - lr max(eps2, rms(W)) weight_decay W, as transformers' is; torch's Adafactor
    decays by lr, which at the default of 0.1 sets weights 13 to 41 % of their way apart.
    """
    # The cap on b2 is 1 - t^decay_rate's own limit: none. Momentum has the weights' own type, not bfloat16.
    return _library_factory("AdaFactor", matrices=True)(
        model,
        betas=(beta1, 1.0 - 1e-12),
        relative_step=False,
        scale_parameter=True,
        momentum_dtype=next((weight.value.dtype for weight in weights(model)), torch.float32),
        **options,
    )


def scale(model: nn.Module, *, lr: float, weight_decay: float, **options: Any) -> Scale:
    """Return SCALE, with AdamW for vectors."""
    _refuse_other_tensors(model, "SCALE")
    chosen = weights(model)
    tied_to = {id(module.weight) for module in model.modules() if isinstance(module, nn.Linear)}
    groups: list[Group] = []
    for axis in (0, 1):
        for last in (False, True):
            alike = [weight for weight in chosen if weight.is_matrix and _scale_axis(weight, tied_to) == (axis, last)]
            groups.append({**params(alike), "weight_decay": weight_decay, "output_axis": axis, "last": last})
    groups.append({**params(weight for weight in chosen if weight.is_vector), "weight_decay": 0.0})
    return Scale(drop_empty_groups(groups), lr, **_join_betas(options))


def _scale_axis(weight: Weight, tied_to: set[int]) -> tuple[int, bool]:
    """Return (axis that counts outputs, whether it is the last layer); `tied_to`: ids of the weights of linear maps.

    An embedding is a map from tokens, stored inputs × outputs; where it is the head too, it maps to tokens.
    """
    if BlockKind.EMBEDDING in weight.kinds:
        tied = id(weight.value) in tied_to
        return (0 if tied else 1), tied
    return weight.output_axis, BlockKind.LM_HEAD in weight.kinds


def shampoo(model: nn.Module, *, lr: float, weight_decay: float, **options: Any) -> Shampoo:
    """Return Shampoo, grafted onto Adam."""
    _refuse_other_tensors(model, "Shampoo")
    return Shampoo(_groups_of_vectors(model, weight_decay), lr, **_join_betas(options))


def mars(model: nn.Module, *, lr: float, weight_decay: float, **options: Any) -> Mars:
    """Return MARS-AdamW, with AdamW for vectors."""
    return Mars(_groups_of_vectors(model, weight_decay), lr, **_join_betas(options))


def _hidden_factory(cls: type[PerParameterOptimizer], mark: str = "projected", **fixed: Any) -> Factory:
    """Return a factory that builds that class for attention and MLP matrices, in groups with the mark, and AdamW
    elsewhere."""

    def factory(model: nn.Module, *, lr: float, weight_decay: float, **options: Any) -> PerParameterOptimizer:
        return cls(_hidden_groups(model, weight_decay, mark), lr, **fixed, **_join_betas(options))

    return factory


galore, golore, fira = _hidden_factory(GaLore), _hidden_factory(GoLore), _hidden_factory(Fira)
apollo, apollo_mini = _hidden_factory(Apollo), _hidden_factory(Apollo, rank_ratio=None)
muon, normuon = _hidden_factory(Muon, "orthogonal"), _hidden_factory(NorMuon, "orthogonal")


def _hidden_groups(model: nn.Module, weight_decay: float, mark: str) -> list[Group]:
    """Return groups: attention and MLP matrices, marked, one for each storage order; all other matrices; vectors."""
    chosen = matrix_groups(model)
    other_matrices = [weight for weight in chosen.weights if not (weight.is_vector or weight.is_hidden)]
    groups: list[Group] = [
        {
            **params(weight for weight in chosen.matrices if weight.output_axis == axis),
            "weight_decay": weight_decay,
            mark: True,
            "output_axis": axis,
        }
        for axis in (0, 1)
    ]
    groups.append({**params(other_matrices), "weight_decay": weight_decay})
    groups.append({**params(chosen.vectors), "weight_decay": 0.0})
    return drop_empty_groups(groups)


def _groups_of_vectors(model: nn.Module, weight_decay: float) -> list[Group]:
    """Return the groups of `decay_groups`, each with whether it is the one of `vectors`."""
    vectors = {weight.name for weight in matrix_groups(model).vectors}
    groups = decay_groups(model, weight_decay)
    return [{**group, "vectors": any(name in vectors for name in group["param_names"])} for group in groups]


def _refuse_other_tensors(model: nn.Module, title: str) -> None:
    """Raise `UnplacedWeightsError` for what is neither vector nor matrix, nor a stack of matrices."""
    shapes = [
        f"{weight.name} {tuple(weight.value.shape)}"
        for weight in weights(model)
        if not (weight.is_vector or weight.is_matrix)
    ]
    if shapes:
        raise UnplacedWeightsError(
            f"{title} trains matrices, stacks of experts and vectors, and {', '.join(shapes)} is none of these; freeze "
            f"it, or choose an optimizer that works element by element, such as adamw"
        )
