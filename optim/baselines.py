"""The baselines' callables that the catalog names: each takes a model, a learning rate and its entry's options.

All decay alike: matrices by a decoupled weight decay, vectors never. The libraries are imported where they are needed:
`pytorch_optimizer` takes two seconds.
"""

from typing import Any

import torch
from torch import Tensor, nn

from optim.adam_mini import AdamMini
from optim.alliance import Alliance
from optim.apollo import Apollo
from optim.asgd import AcceleratedSGD
from optim.blocks import BlockKind
from optim.galore import Fira, GaLore, GoLore
from optim.library import DecoupledSGD, copyable
from optim.placement import plan_blocks
from optim.scale import Scale
from optim.shampoo import Shampoo
from optim.wrappers import plain_name

Groups = list[dict[str, Any]]
Named = list[tuple[str, Tensor]]

_HIDDEN = frozenset({BlockKind.QUERY, BlockKind.KEY, BlockKind.VALUE, BlockKind.ATTENTION_OUTPUT, BlockKind.MLP})


def sgd(model: nn.Module, *, lr: float, weight_decay: float) -> torch.optim.Optimizer:
    """Plain SGD."""
    return DecoupledSGD(decaying(model, weight_decay, "decoupled_weight_decay"), lr=lr)


def nesterov(model: nn.Module, *, lr: float, momentum: float, weight_decay: float) -> torch.optim.Optimizer:
    """SGD with Nesterov's momentum."""
    groups = decaying(model, weight_decay, "decoupled_weight_decay")
    return DecoupledSGD(groups, lr=lr, momentum=momentum, nesterov=momentum > 0.0)


def asgd(model: nn.Module, *, lr: float, weight_decay: float, **options: Any) -> AcceleratedSGD:
    """Accelerated SGD."""
    return AcceleratedSGD(decaying(model, weight_decay), lr, **options)


def adam_mini(model: nn.Module, *, lr: float, beta1: float, beta2: float, **options: Any) -> AdamMini:
    """Adam-mini; weights that no rule places keep Adam's second moment where `unknown` is "full"."""
    return AdamMini.for_model(model, lr, betas=(beta1, beta2), **options)


def lion(model: nn.Module, *, lr: float, beta1: float, beta2: float, weight_decay: float) -> torch.optim.Optimizer:
    """Lion."""
    from pytorch_optimizer import Lion

    return copyable(Lion)(decaying(model, weight_decay), lr=lr, betas=(beta1, beta2))


def adafactor(
    model: nn.Module,
    *,
    lr: float,
    beta1: float,
    decay_rate: float,
    clip_threshold: float,
    eps1: float,
    eps2: float,
    weight_decay: float,
) -> torch.optim.Optimizer:
    """Adafactor with momentum, its steps relative to each parameter's size and lr in place of 1 / sqrt(t)."""
    from pytorch_optimizer import AdaFactor

    # The cap on b2 is 1 - t^decay_rate's own limit: none. Momentum has the weights' own type, not bfloat16.
    return copyable(AdaFactor)(
        decaying(model, weight_decay),
        lr=lr,
        betas=(beta1, 1.0 - 1e-12),
        decay_rate=decay_rate,
        clip_threshold=clip_threshold,
        eps1=eps1,
        eps2=eps2,
        relative_step=False,
        scale_parameter=True,
        momentum_dtype=next((value.dtype for _, value in _trainable(model)), torch.float32),
    )


def came(
    model: nn.Module,
    *,
    lr: float,
    beta1: float,
    beta2: float,
    beta3: float,
    clip_threshold: float,
    weight_decay: float,
) -> torch.optim.Optimizer:
    """CAME."""
    from pytorch_optimizer import CAME

    groups = decaying(model, weight_decay)
    return copyable(CAME)(groups, lr=lr, betas=(beta1, beta2, beta3), clip_threshold=clip_threshold)


def sm3(model: nn.Module, *, lr: float, momentum: float, weight_decay: float) -> torch.optim.Optimizer:
    """SM3-II."""
    from pytorch_optimizer import SM3

    groups = decaying(model, weight_decay, "decoupled_weight_decay")
    return copyable(SM3, decay=True)(groups, lr=lr, momentum=momentum)


def galore(model: nn.Module, *, lr: float, beta1: float, beta2: float, **options: Any) -> GaLore:
    """GaLore on attention and MLP matrices, AdamW elsewhere."""
    return GaLore(_projected(model, options.pop("weight_decay")), lr, betas=(beta1, beta2), **options)


def golore(model: nn.Module, *, lr: float, beta1: float, beta2: float, **options: Any) -> GoLore:
    """GoLore on attention and MLP matrices, AdamW elsewhere."""
    return GoLore(_projected(model, options.pop("weight_decay")), lr, betas=(beta1, beta2), **options)


def fira(model: nn.Module, *, lr: float, beta1: float, beta2: float, **options: Any) -> Fira:
    """Fira on attention and MLP matrices, AdamW elsewhere."""
    return Fira(_projected(model, options.pop("weight_decay")), lr, betas=(beta1, beta2), **options)


def apollo(model: nn.Module, *, lr: float, beta1: float, beta2: float, **options: Any) -> Apollo:
    """APOLLO on attention and MLP matrices, AdamW elsewhere."""
    return Apollo(_projected(model, options.pop("weight_decay")), lr, betas=(beta1, beta2), **options)


def apollo_mini(model: nn.Module, *, lr: float, beta1: float, beta2: float, **options: Any) -> Apollo:
    """APOLLO-mini on attention and MLP matrices, AdamW elsewhere."""
    groups = _projected(model, options.pop("weight_decay"))
    return Apollo(groups, lr, betas=(beta1, beta2), rank_ratio=None, **options)


def scale(model: nn.Module, *, lr: float, beta1: float, beta2: float, weight_decay: float, **options: Any) -> Scale:
    """SCALE, with AdamW for vectors."""
    axes = {block.parameter: block.output_axis for block in plan_blocks(model, unknown="full")}
    # An embedding is a map from tokens, stored inputs × outputs; where it is the head too, it maps to tokens.
    embeddings, heads = _embeddings(model), _heads(model)
    groups: Groups = []
    for axis in (0, 1):
        for last in (False, True):
            named = [
                (name, value)
                for name, value in _trainable(model)
                if value.ndim > 1
                and (id(value) in heads) is last
                and (int(not last) if id(value) in embeddings else axes[name]) == axis
            ]
            groups.append({"params": named, "weight_decay": weight_decay, "output_axis": axis, "last": last})
    vectors = [(name, value) for name, value in _trainable(model) if value.ndim <= 1]
    groups.append({"params": vectors, "weight_decay": 0.0})
    return Scale(_filled(groups), lr, betas=(beta1, beta2), **options)


def muon(
    model: nn.Module,
    *,
    lr: float,
    momentum: float,
    nesterov: bool,
    newton_schulz_steps: int,
    adjust_lr: str,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
) -> Alliance:
    """torch's Muon on attention and MLP matrices, AdamW elsewhere."""
    hidden, others, vectors = _projected(model, weight_decay, filled=False)
    members: list[torch.optim.Optimizer] = []
    if hidden["params"]:
        muons = torch.optim.Muon(
            hidden["params"],
            lr=lr,
            weight_decay=weight_decay,
            momentum=momentum,
            nesterov=nesterov,
            ns_steps=newton_schulz_steps,
            adjust_lr_fn=adjust_lr,
        )
        members.append(muons)
    if rest := _filled([others, vectors]):
        members.append(torch.optim.AdamW(rest, lr=lr, betas=(beta1, beta2), eps=eps))
    return Alliance(members)


def soap(
    model: nn.Module,
    *,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    precondition_frequency: int,
    max_precondition_dim: int,
) -> torch.optim.Optimizer:
    """SOAP."""
    from pytorch_optimizer import SOAP

    return copyable(SOAP)(
        decaying(model, weight_decay),
        lr=lr,
        betas=(beta1, beta2),
        eps=eps,
        precondition_frequency=precondition_frequency,
        max_precondition_dim=max_precondition_dim,
    )


def shampoo(model: nn.Module, *, lr: float, beta1: float, beta2: float, **options: Any) -> Shampoo:
    """Shampoo, grafted onto Adam."""
    return Shampoo(decaying(model, options.pop("weight_decay")), lr, betas=(beta1, beta2), **options)


def mars(
    model: nn.Module,
    *,
    lr: float,
    beta1: float,
    beta2: float,
    gamma: float,
    eps: float,
    weight_decay: float,
) -> torch.optim.Optimizer:
    """MARS-AdamW; vectors by AdamW at half the rate, as in the authors' config/train_gpt2_small_mars.py."""
    from pytorch_optimizer import MARS

    return copyable(MARS)(
        decaying(model, weight_decay),
        lr=lr,
        lr_1d=lr / 2,
        betas=(beta1, beta2),
        gamma=gamma,
        eps=eps,
        weight_decay_1d=0.0,
    )


def schedule_free_adamw(
    model: nn.Module, *, lr: float, beta1: float, beta2: float, eps: float, weight_decay: float
) -> torch.optim.Optimizer:
    """Schedule-Free AdamW; it has `train()` and `eval()`."""
    from pytorch_optimizer import ScheduleFreeAdamW

    return copyable(ScheduleFreeAdamW)(decaying(model, weight_decay), lr=lr, betas=(beta1, beta2), eps=eps)


def _trainable(model: nn.Module) -> Named:
    return [(plain_name(name), value) for name, value in model.named_parameters() if value.requires_grad]


def decaying(model: nn.Module, weight_decay: float, key: str = "weight_decay") -> Groups:
    """Matrices with that decay, vectors with none."""
    matrices = [(name, value) for name, value in _trainable(model) if value.ndim > 1]
    vectors = [(name, value) for name, value in _trainable(model) if value.ndim <= 1]
    return _filled([{"params": matrices, key: weight_decay}, {"params": vectors, key: 0.0}])


def _projected(model: nn.Module, weight_decay: float, *, filled: bool = True) -> Groups:
    """Attention and MLP matrices, all other matrices, vectors."""
    hidden = {block.parameter for block in plan_blocks(model, unknown="full") if block.kind in _HIDDEN}
    trainable = _trainable(model)
    groups: Groups = [
        {
            "params": [(name, value) for name, value in trainable if name in hidden],
            "weight_decay": weight_decay,
            "projected": True,
        },
        {
            "params": [(name, value) for name, value in trainable if name not in hidden and value.ndim > 1],
            "weight_decay": weight_decay,
        },
        {"params": [(name, value) for name, value in trainable if value.ndim <= 1], "weight_decay": 0.0},
    ]
    return _filled(groups) if filled else groups


def _filled(groups: Groups) -> Groups:
    return [group for group in groups if group["params"]]


def _embeddings(model: nn.Module) -> set[int]:
    return {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}


def _heads(model: nn.Module) -> set[int]:
    """The last layer: linear maps from the model's width to a vocabulary."""
    sizes = {(m.num_embeddings, m.embedding_dim) for m in model.modules() if isinstance(m, nn.Embedding)}
    return {
        id(module.weight)
        for module in model.modules()
        if isinstance(module, nn.Linear) and (module.out_features, module.in_features) in sizes
    }
