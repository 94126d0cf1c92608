"""How large a crew is: the processes of a run that several devices train."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class CrewShape:
    """How many processes there are, and what each occupies."""

    processes: int
    cpus: int
    """Of each process."""
    gpu: bool
    """Whether each has one."""
