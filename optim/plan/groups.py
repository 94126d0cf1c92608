"""Groups for optimizers without a block plan of their own: a model's hidden matrices, embeddings, heads and vectors;
and parameter groups as `torch.optim` takes them: one list or several groups, of parameters with names or without."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.optim.optimizer import ParamsT

from .blocks import BlockKind
from .modules import plain_name
from .placement import plan_blocks

Group = dict[str, Any]


@dataclass(frozen=True, kw_only=True, eq=False)
class Weight:
    """A trainable parameter, and what an optimizer without a block plan of its own must know of it."""

    name: str
    value: Tensor
    kinds: frozenset[BlockKind]
    output_axis: int
    """The axis of its matrices that counts outputs: 0 for out × in, 1 for in × out."""
    is_vector: bool
    """Return whether it is one, or a stack of such (the biases of experts): vectors never decay."""
    is_stack: bool
    """Whether its first dimension counts matrices: experts × out × in, or experts × in × out."""

    @property
    def is_matrix(self) -> bool:
        """Return whether it is one, or a stack of such, and no tensor of another kind (a convolution's)."""
        return not self.is_vector and (self.value.ndim == 2 or self.is_stack)

    @property
    def is_hidden(self) -> bool:
        """Return whether it is a matrix of the layers, or a stack of such: of attention or an MLP."""
        return self.is_matrix and self.kinds <= _HIDDEN


_HIDDEN = frozenset(
    {
        *(BlockKind.QUERY, BlockKind.KEY, BlockKind.VALUE, BlockKind.ATTENTION_OUTPUT, BlockKind.MLP),
        # Moonlight, the first large model of Muon's, has latent attention (Liu et al., arXiv 2502.16982).
        *(BlockKind.LATENT, BlockKind.GATE),
    }
)
_HEADS = frozenset({BlockKind.LM_HEAD, BlockKind.TASK_HEAD})


@dataclass(frozen=True)
class MatrixGroups:
    """A model's trainable parameters, apart as optimizers of matrices want them; each is in one of the five lists."""

    weights: tuple[Weight, ...]
    """All, in the model's order."""

    @property
    def matrices(self) -> list[Weight]:
        """Return hidden matrices and stacks of experts: what Muon, Dion, GaLore and the like are for."""
        return [weight for weight in self.weights if weight.is_hidden]

    @property
    def embeddings(self) -> list[Weight]:
        """Return tables of tokens and positions, heads that are tied to one too."""
        return [weight for weight in self._rest if BlockKind.EMBEDDING in weight.kinds]

    @property
    def heads(self) -> list[Weight]:
        """Return LM heads that are not tied, and task heads."""
        return [weight for weight in self._rest if weight.kinds <= _HEADS]

    @property
    def others(self) -> list[Weight]:
        """Return routers, adapters, convolutions, the weights of state-space layers, and what no role places."""
        return [
            weight for weight in self._rest if BlockKind.EMBEDDING not in weight.kinds and not weight.kinds <= _HEADS
        ]

    @property
    def vectors(self) -> list[Weight]:
        """Return norms, biases and scalars, which never decay."""
        return [weight for weight in self.weights if weight.is_vector]

    @property
    def _rest(self) -> list[Weight]:
        return [weight for weight in self.weights if not weight.is_vector and not weight.is_hidden]


def matrix_groups(model: nn.Module) -> MatrixGroups:
    """Divide the trainable parameters of a model, which may be on `meta`, as the block plan sees them.

    Nothing is refused: what no role places is in `others`.
    """
    return MatrixGroups(tuple(weights(model)))


def weights(model: nn.Module) -> list[Weight]:
    """Return the trainable parameters of a model in their order, as the block plan sees them; without any that are
    empty."""
    blocks = plan_blocks(model, unknown="full").parameter_blocks
    return [
        Weight(
            name=plain_name(name),
            value=value,
            kinds=frozenset(block.kind for block in blocks[plain_name(name)]),
            output_axis=blocks[plain_name(name)][0].output_axis,
            is_vector=not any(block.decays for block in blocks[plain_name(name)]),
            is_stack=value.ndim == 3 and all(block.index is not None for block in blocks[plain_name(name)]),
        )
        for name, value in model.named_parameters()
        if value.requires_grad and value.numel() > 0
    ]


def decay_groups(
    model: nn.Module, weight_decay: float, key: str = "weight_decay", *, stacks: bool = False
) -> list[Group]:
    """Return groups: matrices with that decay, vectors without; with `stacks`, stacks get their own group, marked
    `stacked`."""
    chosen = weights(model)
    stack_weights = [weight for weight in chosen if weight.is_stack and stacks]
    matrix_weights = [weight for weight in chosen if not weight.is_vector and not (weight.is_stack and stacks)]
    groups = [
        {**params(matrix_weights), key: weight_decay},
        {**params(stack_weights), key: weight_decay, "stacked": True},
        {**params(weight for weight in chosen if weight.is_vector), key: 0.0},
    ]
    return drop_empty_groups(groups)


def drop_empty_groups(groups: list[Group]) -> list[Group]:
    """Return the groups that have parameters."""
    return [group for group in groups if group["params"]]


def params(chosen: Iterable[Weight]) -> Group:
    """Return a group of these, with their names."""
    return as_group({"params": [(weight.name, weight.value) for weight in chosen]})


def as_groups(params: ParamsT | nn.Module) -> list[Group]:
    """Return the same parameters, of a model the trainable ones, as groups whose `params` are lists of tensors, beside
    `param_names` where they have names."""
    if isinstance(params, nn.Module):
        params = [(name, value) for name, value in params.named_parameters() if value.requires_grad]
    if isinstance(params, Tensor):
        raise TypeError(f"the parameters to train are one tensor {tuple(params.shape)}; give a list of (name, tensor)")
    if isinstance(params, Mapping):
        raise TypeError("the parameters to train are a dict; give its items(), pairs of (name, tensor), or the model")
    entries: list[Any] = list(params)
    if not entries:
        return []
    groups: list[Group] = entries if isinstance(entries[0], dict) else [{"params": entries}]
    return [as_group(group) for group in groups]


def names(groups: list[Group]) -> Iterator[tuple[str, Tensor]]:
    """Return (name, parameter) of every parameter that has a name."""
    for group in groups:
        for name, value in zip(group.get("param_names", ()), group["params"], strict=False):
            yield plain_name(name), value


def name_groups(model: nn.Module, groups: list[Group]) -> list[Group]:
    """Return the groups with the names that their parameters have in the model.

    Raises:
        ValueError: a parameter is not the model's.
    """
    names_by_id = {id(value): name for name, value in model.named_parameters()}
    for group in groups:
        strangers = [str(tuple(value.shape)) for value in group["params"] if id(value) not in names_by_id]
        if strangers:
            raise ValueError(f"parameters of shape {', '.join(strangers)} are not the model's; give groups of its own")
        group["param_names"] = [names_by_id[id(value)] for value in group["params"]]
    return groups


def as_group(group: Group) -> Group:
    """Return the group with names and tensors in separate lists, as torch has done since 2.6; an empty one has names,
    too.

    Torch takes an empty group for one without names, and refuses it beside others that have them.
    """
    members = group["params"]
    if isinstance(members, set):
        raise TypeError("parameters of a group must be in an order that stays; give a list instead of a set")
    parameters: list[Any] = [members] if isinstance(members, Tensor) else list(members)
    named = [parameter for parameter in parameters if isinstance(parameter, tuple)]
    if not named and parameters:
        return {**group, "params": parameters}
    if len(named) < len(parameters):
        raise ValueError(
            f"{len(named)} of the {len(parameters)} parameters of a group have names; give names to all or none"
        )
    return {**group, "params": [value for _, value in named], "param_names": [name for name, _ in named]}
