"""The baselines' callables that the catalog names: each takes a model, a learning rate and its entry's options.

All decay alike: matrices by a decoupled weight decay, vectors never. Libraries are imported where they are needed.
"""

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import nn

from ..adapm import AdaPM, AdaPMMini
from ..baselines.adam_mini import AdamMini
from ..baselines.adapters import DecoupledSGD, complete_class
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
from ..plan.placement import Unknown

# The devices on which torch has a fused AdamW that needs no extra care. It is the honest baseline for speed: on a CPU
# some six times faster than the foreach one.
_FUSED_DEVICES = frozenset({"cpu", "cuda"})


def adapm(model: nn.Module, *, lr: float, **options: Any) -> AdaPM:
    """AdaPM on every trainable parameter of the model."""
    return AdaPM.for_model(model, lr, **_adapm_arguments(**options))


def adapm_mini(model: nn.Module, *, lr: float, **options: Any) -> AdaPMMini:
    """AdaPM-mini on every trainable parameter of the model."""
    return AdaPMMini.for_model(model, lr, **_adapm_arguments(**options))


def adamw(
    model: nn.Module, *, lr: float, beta1: float, beta2: float, eps: float, weight_decay: float
) -> torch.optim.AdamW:
    """torch's fused AdamW. Matrices decay and vectors do not, as for AdaPM, so that the two compare."""
    groups = decay_groups(model, weight_decay)
    fused = all(value.device.type in _FUSED_DEVICES for group in groups for value in group["params"])
    return torch.optim.AdamW(groups, lr=lr, betas=(beta1, beta2), eps=eps, fused=fused or None)


def _adapm_arguments(
    *, beta1: float, beta2: float, state_dtype: str | None, unknown: str, **options: Any
) -> dict[str, Any]:
    dtype = None if state_dtype is None else cast("torch.dtype", getattr(torch, state_dtype))
    return {**options, "betas": (beta1, beta2), "state_dtype": dtype, "unknown": cast(Unknown, unknown)}


def sgd(model: nn.Module, *, lr: float, weight_decay: float) -> torch.optim.Optimizer:
    """Plain SGD."""
    return DecoupledSGD(decay_groups(model, weight_decay, "decoupled_weight_decay"), lr=lr)


def nesterov(model: nn.Module, *, lr: float, momentum: float, weight_decay: float) -> torch.optim.Optimizer:
    """SGD with Nesterov's momentum."""
    groups = decay_groups(model, weight_decay, "decoupled_weight_decay")
    return DecoupledSGD(groups, lr=lr, momentum=momentum, nesterov=momentum > 0.0)


def asgd(model: nn.Module, *, lr: float, weight_decay: float, **options: Any) -> AcceleratedSGD:
    """Accelerated SGD."""
    return AcceleratedSGD(decay_groups(model, weight_decay), lr, **options)


def adam_mini(model: nn.Module, *, lr: float, beta1: float, beta2: float, **options: Any) -> AdamMini:
    """Adam-mini; weights that no rule places keep Adam's second moment where `unknown` is "full"."""
    return AdamMini.for_model(model, lr, betas=(beta1, beta2), **options)


def lion(model: nn.Module, *, lr: float, beta1: float, beta2: float, weight_decay: float) -> torch.optim.Optimizer:
    """Lion."""
    groups = decay_groups(model, weight_decay)
    return complete_class("Lion")(groups, lr=lr, betas=(beta1, beta2), foreach=_foreach(model))


def signsgd(model: nn.Module, *, lr: float, momentum: float, weight_decay: float) -> torch.optim.Optimizer:
    """Signum, which is signSGD without momentum."""
    groups = decay_groups(model, weight_decay)
    return complete_class("SignSGD")(groups, lr=lr, momentum=momentum, foreach=_foreach(model))


def ademamix(
    model: nn.Module, *, lr: float, beta1: float, beta2: float, beta3: float, weight_decay: float, **options: Any
) -> AdEMAMix:
    """AdEMAMix."""
    return AdEMAMix(decay_groups(model, weight_decay), lr, betas=(beta1, beta2, beta3), **options)


def adopt(model: nn.Module, *, lr: float, beta1: float, beta2: float, weight_decay: float, **options: Any) -> Adopt:
    """ADOPT."""
    return Adopt(decay_groups(model, weight_decay), lr, betas=(beta1, beta2), **options)


def adafactor(
    model: nn.Module, *, lr: float, beta1: float, weight_decay: float, **options: float
) -> torch.optim.Optimizer:
    """Adafactor with momentum, its steps relative to each parameter's size and lr in place of 1 / sqrt(t).

    Decay is relative as well, W <- W - lr max(eps2, rms(W)) weight_decay W, as transformers' is; torch's Adafactor
    decays by lr, which at the default of 0.1 sets weights 13 to 41 % of their way apart.
    """
    # The cap on b2 is 1 - t^decay_rate's own limit: none. Momentum has the weights' own type, not bfloat16.
    return complete_class("AdaFactor", matrices=True)(
        decay_groups(model, weight_decay, stacks=True),
        lr=lr,
        betas=(beta1, 1.0 - 1e-12),
        relative_step=False,
        scale_parameter=True,
        momentum_dtype=next((one.value.dtype for one in weights(model)), torch.float32),
        **options,
    )


def came(
    model: nn.Module, *, lr: float, beta1: float, beta2: float, beta3: float, weight_decay: float, **options: float
) -> torch.optim.Optimizer:
    """CAME."""
    groups = decay_groups(model, weight_decay, stacks=True)
    return complete_class("CAME", matrices=True)(groups, lr=lr, betas=(beta1, beta2, beta3), **options)


def sm3(model: nn.Module, *, lr: float, momentum: float, weight_decay: float) -> torch.optim.Optimizer:
    """SM3-II."""
    groups = decay_groups(model, weight_decay, "decoupled_weight_decay", stacks=True)
    return complete_class("SM3", matrices=True, decay=True)(groups, lr=lr, momentum=momentum)


def scale(model: nn.Module, *, lr: float, beta1: float, beta2: float, weight_decay: float, **options: Any) -> Scale:
    """SCALE, with AdamW for vectors."""
    _refuse_other_tensors(model, "SCALE")
    chosen = weights(model)
    tied_to = {id(module.weight) for module in model.modules() if isinstance(module, nn.Linear)}
    groups: list[Group] = []
    for axis in (0, 1):
        for last in (False, True):
            alike = [one for one in chosen if one.is_matrix and _scale_axis(one, tied_to) == (axis, last)]
            groups.append({**params(alike), "weight_decay": weight_decay, "output_axis": axis, "last": last})
    groups.append({**params(one for one in chosen if one.is_vector), "weight_decay": 0.0})
    return Scale(drop_empty_groups(groups), lr, betas=(beta1, beta2), **options)


def _scale_axis(one: Weight, tied_to: set[int]) -> tuple[int, bool]:
    """(the axis that counts outputs, whether it is the last layer), with the weights of linear maps to tell tied ones.

    An embedding is a map from tokens, stored inputs × outputs; where it is the head too, it maps to tokens.
    """
    if BlockKind.EMBEDDING in one.kinds:
        tied = id(one.value) in tied_to
        return (0 if tied else 1), tied
    return one.output_axis, BlockKind.LM_HEAD in one.kinds


def soap(
    model: nn.Module, *, lr: float, beta1: float, beta2: float, weight_decay: float, **options: Any
) -> torch.optim.Optimizer:
    """SOAP."""
    groups = decay_groups(model, weight_decay, stacks=True)
    return complete_class("SOAP", matrices=True)(groups, lr=lr, betas=(beta1, beta2), **options)


def shampoo(model: nn.Module, *, lr: float, beta1: float, beta2: float, weight_decay: float, **options: Any) -> Shampoo:
    """Shampoo, grafted onto Adam."""
    _refuse_other_tensors(model, "Shampoo")
    return Shampoo(_groups_of_vectors(model, weight_decay), lr, betas=(beta1, beta2), **options)


def mars(model: nn.Module, *, lr: float, beta1: float, beta2: float, weight_decay: float, **options: Any) -> Mars:
    """MARS-AdamW, with AdamW for vectors."""
    return Mars(_groups_of_vectors(model, weight_decay), lr, betas=(beta1, beta2), **options)


def schedule_free_adamw(
    model: nn.Module, *, lr: float, beta1: float, beta2: float, eps: float, weight_decay: float
) -> torch.optim.Optimizer:
    """Schedule-Free AdamW; it has `train()` and `eval()`."""
    groups = decay_groups(model, weight_decay)
    return complete_class("ScheduleFreeAdamW", plain_root=True)(
        groups, lr=lr, betas=(beta1, beta2), eps=eps, foreach=_foreach(model)
    )


def _foreach(model: nn.Module) -> bool | None:
    """Whether the library is to work on lists of tensors; None for its own choice. On a CPU lists save no launch, and
    their temporaries are as large as the model, mapped anew at each step."""
    return False if all(value.is_cpu for value in model.parameters()) else None


def _hidden_factory(
    cls: type[PerParameterOptimizer], mark: str = "projected", **fixed: Any
) -> Callable[..., PerParameterOptimizer]:
    """What builds that class for attention and MLP matrices, in groups with the mark, and AdamW elsewhere."""

    def factory(
        model: nn.Module, *, lr: float, beta1: float, beta2: float, weight_decay: float, **options: Any
    ) -> PerParameterOptimizer:
        groups = _hidden_groups(model, weight_decay, mark)
        return cls(groups, lr, betas=(beta1, beta2), **fixed, **options)

    return factory


galore, golore, fira = _hidden_factory(GaLore), _hidden_factory(GoLore), _hidden_factory(Fira)
apollo, apollo_mini = _hidden_factory(Apollo), _hidden_factory(Apollo, rank_ratio=None)
muon, normuon = _hidden_factory(Muon, "orthogonal"), _hidden_factory(NorMuon, "orthogonal")


def _hidden_groups(model: nn.Module, weight_decay: float, mark: str) -> list[Group]:
    """Attention and MLP matrices, with the mark and apart by how they are stored; all other matrices; vectors."""
    chosen = matrix_groups(model)
    others = [one for one in chosen.weights if not (one.is_vector or one.is_hidden)]
    groups: list[Group] = [
        {
            **params(one for one in chosen.matrices if one.output_axis == axis),
            "weight_decay": weight_decay,
            mark: True,
            "output_axis": axis,
        }
        for axis in (0, 1)
    ]
    groups.append({**params(others), "weight_decay": weight_decay})
    groups.append({**params(chosen.vectors), "weight_decay": 0.0})
    return drop_empty_groups(groups)


def _groups_of_vectors(model: nn.Module, weight_decay: float) -> list[Group]:
    """The groups of `decay_groups`, each with whether it is the one of `vectors`."""
    vectors = {one.name for one in matrix_groups(model).vectors}
    groups = decay_groups(model, weight_decay)
    return [{**group, "vectors": any(name in vectors for name in group["param_names"])} for group in groups]


def _refuse_other_tensors(model: nn.Module, title: str) -> None:
    """Raise `UnplacedWeightsError` for what is neither vector nor matrix, nor a stack of matrices."""
    others = [f"{one.name} {tuple(one.value.shape)}" for one in weights(model) if not (one.is_vector or one.is_matrix)]
    if others:
        raise UnplacedWeightsError(
            f"{title} trains matrices, stacks of experts and vectors, and {', '.join(others)} is none of these; freeze "
            f"it, or choose an optimizer that works element by element, such as adamw"
        )
