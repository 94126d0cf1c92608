"""Estimates of what an experiment takes before it is submitted: device-hours by measured runs, memory by counts.

    shares + the newest runs of each model ─► seconds a token and a start ─► `CostEstimate`
    shares               + footprints that were counted once ─► bytes at the least          ─► `CandidateMemory`

Nothing is guessed: what was never measured or counted is said to be unknown.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from orchestrator.kinds.experiment import Share
from orchestrator.records import RunRecord
from orchestrator.specs.footprints import Footprints, footprint_question
from worker.catalog import presets
from worker.footprint.process import FootprintQuestion
from worker.records.result import Record
from worker.spec.run import Workload

ASKED = {"rank_ratio", "state_dtype"}
STATELESS = {"eps", "weight_decay", "clip", "refresh_interval", "inner_iterations", "seed", "lr", "warmup_steps"}
"""Hyperparameters that no byte of state depends on."""
RunsOfModel = Callable[[str], Sequence[RunRecord]]
"""The newest runs of a model that have succeeded, newest first."""


class CandidateMemory(Record):
    """What training a candidate keeps at the least: parameters, gradients, optimizer state; activations come on top."""

    candidate: str
    model: str
    state_bytes: int
    total_bytes: int


class CostEstimate(Record):
    """What the runs may cost, by the pace of measured ones."""

    device_hours: float
    device: str
    """On which device that pace was measured; another one has another pace."""
    measured_runs: int
    assumed: tuple[str, ...]
    """Candidates without a measured run: they are taken to be as fast as the mean of all others."""
    unmeasured: tuple[str, ...] = ()
    """Models of which no run was measured here: theirs are not in the hours."""


@dataclass(frozen=True, kw_only=True)
class Pace:
    """How fast runs of one model and task went, on the device of the newest one."""

    device: str
    by_optimizer: dict[str, float]
    """Seconds a token, of each optimizer the mean of its runs."""
    start_seconds: float
    """What a run takes besides training."""
    runs: int

    def seconds(self, share: Share) -> float:
        """What the runs of a share take."""
        pace = self.by_optimizer.get(share.optimizer, fmean(self.by_optimizer.values()))
        return share.tokens() * pace + share.runs * self.start_seconds


def cost(shares: Sequence[Share], measured: RunsOfModel) -> CostEstimate | None:
    """The hours of all shares; None where no run of any of their models was ever measured here."""
    workloads = {share.workload.model: share.workload for share in shares}
    paces = {model: _pace(workload, measured(model)) for model, workload in workloads.items()}
    known = [(share, pace) for share in shares if (pace := paces[share.workload.model]) is not None]
    if not known:
        return None
    found = [pace for pace in paces.values() if pace is not None]
    return CostEstimate(
        device_hours=sum(pace.seconds(share) for share, pace in known) / 3600,
        device=", ".join(dict.fromkeys(pace.device for pace in found)),
        measured_runs=sum(pace.runs for pace in found),
        assumed=tuple(
            dict.fromkeys(share.candidate for share, pace in known if share.optimizer not in pace.by_optimizer)
        ),
        unmeasured=tuple(model for model, pace in paces.items() if pace is None),
    )


def memory(shares: Sequence[Share], footprints: Footprints) -> Iterator[CandidateMemory]:
    """Of every candidate and model whose footprint is known, once each."""
    seen: set[tuple[str, str]] = set()
    for share in shares:
        key = share.candidate, share.workload.model
        question = None if key in seen else _question(share)
        seen.add(key)
        known = footprints.find(question) if question else None
        kept = {one.optimizer: one.state_bytes for one in known.optimizers} if known else {}
        state_bytes = kept.get(share.optimizer)
        if known and state_bytes is not None:
            total = known.parameter_bytes + known.gradient_bytes + state_bytes
            yield CandidateMemory(candidate=key[0], model=key[1], state_bytes=state_bytes, total_bytes=total)


def _pace(workload: Workload, measured: Sequence[RunRecord]) -> Pace | None:
    """Of runs with the same task, which sets what is done for a token, on the newest one's device."""
    paces: dict[str, list[float]] = {}
    starts: list[float] = []
    device = None
    for run in measured:
        if run.spec is None or run.result is None or not run.result.tokens:
            continue
        if run.spec.workload.task.kind != workload.task.kind:
            continue
        device = device or run.result.environment.device_name
        if run.result.environment.device_name == device:
            productive = run.result.productive_seconds or run.result.device_seconds
            paces.setdefault(run.optimizer, []).append(productive / run.result.tokens)
            starts.append(max(run.result.device_seconds - productive, 0.0))
    if device is None:
        return None
    means = {optimizer: fmean(found) for optimizer, found in paces.items()}
    return Pace(device=device, by_optimizer=means, start_seconds=median(starts), runs=len(starts))


def _question(share: Share) -> FootprintQuestion | None:
    """The question whose answer holds for the share; None where only a count of its own would tell."""
    model, options = share.workload.model, share.options
    if model not in presets.names() or share.has_rules:
        return None
    if options.keys() - ASKED - STATELESS or share.searched - STATELESS:
        return None
    if presets.preset(model).vocabulary_of_tokenizer and share.workload.data.tokenizer != "byte":
        return None
    try:
        return footprint_question(model, options.get("rank_ratio"), options.get("state_dtype"))
    except ValueError:
        return None
