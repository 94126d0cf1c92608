"""Performance profiles as records: each candidate's times to target on several workloads, and its scores."""

from worker.record import Record


class WorkloadTime(Record):
    """How long a candidate took on one workload, median over seeds; null where half of them never got there."""

    experiment_id: str
    """The first of its experiments."""
    name: str
    experiments: tuple[str, ...] = ()
    """All experiments that trained this workload; of several, the times are the median."""
    tokens: float | None
    device_hours: float | None


class ProfileRow(Record):
    """One candidate over all workloads."""

    candidate: str
    title: str
    is_baseline: bool
    score_tokens: float
    """Of the profile over tokens to target: 0 to 1. It does not depend on the machine."""
    score_device_hours: float
    """Of the profile over device-hours to target: it does, and is fair on one kind of device only."""
    times: tuple[WorkloadTime, ...]


class ProfileReport(Record):
    """Candidates over several workloads, the best first."""

    experiments: tuple[str, ...]
    workloads: int
    """Fewer than experiments, where some of these train the same."""
    largest_tau: float
    rows: tuple[ProfileRow, ...]
    notes: tuple[str, ...]
