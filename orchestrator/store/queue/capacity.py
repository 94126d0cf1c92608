"""Placement of runs: the free resources of every node of a cluster, so that no more is claimed than can start at once.

Ray lets an actor that fits nowhere wait in silence, and its lease would run out meanwhile. A run needs all of its CPUs
and GPUs on one node.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NewType

from worker.words import pluralize

# How large a group is: the processes of a run that several devices train.


@dataclass(frozen=True, kw_only=True)
class ProcessGroupShape:
    """The number of processes, and the resources of each."""

    processes: int
    cpus: int
    """The CPUs of each process."""
    gpu: bool
    """Whether each has one."""


NodeId = NewType("NodeId", str)


@dataclass(frozen=True, kw_only=True)
class Node:
    """A machine of the cluster, or what is free on it."""

    id: NodeId
    cpus: int
    gpus: int

    def holds(self, cpus: int, gpus: int) -> bool:
        """Return whether so much fits on it."""
        return self.cpus >= cpus and self.gpus >= gpus


class FreeCapacity:
    """The free resources of the nodes; taken step by step."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        self._free = {node.id: node for node in nodes}

    def cpus(self) -> int:
        """Return the CPUs that are free in all: no more runs than this can start."""
        return sum(max(node.cpus, 0) for node in self._free.values())

    def take(self, cpus: int, gpus: int) -> NodeId | None:
        """Occupy the tightest node that holds it, GPUs counted first; None if no node does."""
        fitting = [node for node in self._free.values() if node.holds(cpus, gpus)]
        if not fitting:
            return None
        # A CPU run goes where no GPU is left over, as long as it can.
        best = min(fitting, key=lambda node: (node.gpus, node.cpus, node.id))
        self.occupy(best.id, cpus, gpus)
        return best.id

    def occupy(self, node: NodeId, cpus: int, gpus: int) -> None:
        """Subtract the CPUs and GPUs of a run there; a node that is gone is not an error."""
        if (resources := self._free.get(node)) is not None:
            self._free[node] = replace(resources, cpus=resources.cpus - cpus, gpus=resources.gpus - gpus)


def largest_nodes(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """Return the nodes that no other one exceeds: a request that fits none of them never fits the cluster."""
    sizes = {(node.cpus, node.gpus): node for node in nodes}
    return tuple(
        node
        for size, node in sorted(sizes.items())
        if not any(other_size != size and other_size[0] >= size[0] and other_size[1] >= size[1] for other_size in sizes)
    )


def shortfall(cpus: int, gpus: int, sizes: Sequence[Node]) -> str | None:
    """Return the reason why none of the `largest_nodes` can ever hold a run of that size; None if one can."""
    if any(node.holds(cpus, gpus) for node in sizes):
        return None
    offered = " or ".join(_size_text(node.cpus, node.gpus) for node in sizes) or "nothing"
    return f"needs {_size_text(cpus, gpus)} on one node; the largest node of the cluster has {offered}"


def _size_text(cpus: int, gpus: int) -> str:
    return f"{pluralize(cpus, 'CPU')} and {pluralize(gpus, 'GPU')}"
