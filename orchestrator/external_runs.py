"""External runs: what training loops outside of the bench log, and the verdicts on it. Records.

    a loop of somebody's own ─► lines of a spool (`api/client/spool.py`) ─► external runs ─► a judgement

Nothing here was measured by the bench: every record says so in `origin`, and no external run is ever a `RunRecord`.
"""

import json
from enum import StrEnum
from typing import Annotated, Literal, get_args

from pydantic import BeforeValidator, ConfigDict, Field, JsonValue, field_validator

from orchestrator.jobs import RunStatus
from orchestrator.names import CandidateName, Name
from orchestrator.records import AnyExperiment, Conclusion, Difference, Interval, LearningRateRow, StateCounts
from worker.records.result import Finite, Record, StoredText, Whole
from worker.spec.run import LearningRate, Seed

LOGGED = "log"
"""The source of runs whose spools are sessions of one training; those of imported runs are corrections."""
Origin = Literal["external"]
"""The origin of figures: a loop that the bench did not run."""
SourceKind = Literal["bench", "logged", "imported"]
"""Where a run is from: trained here, logged by another loop, or imported from another tool's files."""
ExternalId = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
MetricName = Annotated[StoredText, Field(min_length=1, max_length=128)]
NotFinite = Literal["nan", "inf", "-inf", "NaN", "Infinity", "-Infinity"]
MetricValue = Annotated[
    float,
    Field(strict=True),
    BeforeValidator(
        lambda value: float(value) if value in get_args(NotFinite) else value,
        json_schema_input_type=float | NotFinite,
    ),
]
"""A number, or a word for one that JSON has not; `true` and `"1.5"` are none."""
MOST_LINES = 2_000
"""The most lines in one request."""
LONGEST_SUMMARY = 2**19
"""Characters of a run's configuration, tags and metrics together, as JSON: new lines rewrite them. Room for 1,000
metrics and 256 KiB of settings."""
MOST_VALUES = 2_000_000
"""Lines of one run, and so values of one metric; also values in one answer."""
MOST_DEPTH = 32
"""The deepest configuration: mappings and lists in one another."""
USUAL_METRICS = ("val_loss", "eval_loss", "validation_loss", "val/loss", "eval/loss", "loss/val")
"""The usual names of a validation loss, in the order of the search."""
SYSTEM = "system/"
"""The beginning of the names of the machine's metrics; their step is the number of the sample."""
END_UNKNOWN = frozenset({"csv", "tensorboard", "trackio"})
"""Sources that do not say whether a run ended; it counts as finished."""
RANK_VARIABLES = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID")
"""The variables in which launchers write the number of a process. They may train one model together or each its own, so
a process beyond the first keeps its variable in its run's configuration, and the judgement decides."""
IMPORTED = "imported"
"""The setting under which an imported run keeps what its source says of it beside its configuration: names, host,
summary, and by `map` which of its fields are the run's candidate, learning rate and seed."""


class ExternalState(StrEnum):
    """The state of an external run, as its own process reported it."""

    RUNNING = "running"
    """It has not reported an end: it trains, or its process was killed."""
    FINISHED = "finished"
    FAILED = "failed"


STATUSES = {
    ExternalState.RUNNING: RunStatus.RUNNING,
    ExternalState.FINISHED: RunStatus.SUCCEEDED,
    ExternalState.FAILED: RunStatus.FAILED,
}
"""The state of a run of the bench that each is like."""


def source_kind(source: str) -> SourceKind:
    """Return where an external run of that source is from; never `bench`, whatever the run says of itself."""
    return "logged" if source == LOGGED else "imported"


class RunHeader(Record):
    """The header of a run, as reported at its start; a run that goes on reports the same."""

    experiment: Name
    """The name of its experiment: who logs without the service knows no id."""
    candidate: CandidateName
    lr: LearningRate | None = None
    seed: Seed | None = None
    workload: Name | None = None
    """The workload that all compared runs share: model, data and budget, in the user's own word."""
    config: dict[str, JsonValue] = Field(default_factory=dict)
    """The rest of the configuration; only its differences between candidates matter."""
    tags: Annotated[tuple[StoredText, ...], Field(max_length=100)] = ()
    source: Annotated[StoredText, Field(max_length=60)] = LOGGED
    """`log`, or what it was imported from: `csv`, `wandb` and so on."""
    started_at: Finite = 0.0
    """The time of the start, on the clock of the process that reported it."""

    @field_validator("config")
    @classmethod
    def _require_writable(cls, config: dict[str, JsonValue]) -> dict[str, JsonValue]:
        """Refuse a configuration that no answer could hold: every list with that run would fail."""
        if _depth(config) > MOST_DEPTH:
            raise ValueError(f"must be nested at most {MOST_DEPTH} deep")
        if (length := len(json.dumps(config))) > LONGEST_SUMMARY:
            raise ValueError(
                f"must have at most {LONGEST_SUMMARY:,} characters as JSON, not {length:,}; keep less in it"
            )
        try:
            json.dumps(config, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise ValueError("must hold whole characters; half of a surrogate pair is none") from None
        return config


def _depth(value: JsonValue) -> int:
    held = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if held is None else 1 + max(map(_depth, held), default=0)


class SpoolLine(Record):
    """A line of a spool: metrics at a step, or a change of state."""

    model_config = ConfigDict(ser_json_inf_nan="strings")

    at: Finite
    step: Whole | None = None
    metrics: Annotated[dict[MetricName, MetricValue], Field(max_length=200)] = Field(default_factory=dict)
    state: ExternalState | None = None


class LinesBatch(Record):
    """Lines of one spool, which one process wrote; they may come again and again."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "run": {"experiment": "Muon against AdamW", "candidate": "muon", "lr": 0.002, "seed": 1},
                    "part": "first",
                    "lines": [
                        {"at": 1767225601.0, "state": "running"},
                        {"at": 1767225602.0, "step": 100, "metrics": {"val_loss": 3.16}},
                        {"at": 1767225603.0, "state": "finished"},
                    ],
                }
            ]
        }
    )

    run: RunHeader
    part: ExternalId
    """The spool: a run that goes on in another process has another one."""
    first_line: Whole = 0
    """The number of the line in the spool."""
    lines: Annotated[tuple[SpoolLine | None, ...], Field(max_length=MOST_LINES)] = ()
    """Null for one that was torn when its process was killed."""


class LinesReceipt(Record):
    """The progress of a spool's transfer."""

    run_id: str
    experiment_id: str
    lines: int
    """The number of received lines from its beginning; the next one is to be sent."""


class MetricSummary(Record):
    """A metric over a whole run; the last of several values at one step counts."""

    points: int
    """Logged values, repetitions among them."""
    first_step: int
    first: float | None
    """Null where it was not finite."""
    last_step: int
    last: float | None
    """The value at the highest step; null if it was not finite."""
    first_at: float
    last_at: float
    left_out: int = 0
    """Values that count nowhere else: beyond a step that the run went back to later, as from a checkpoint, or of one
    of several processes that logged as this run at the same time."""


class ExternalRun(Record):
    """A training that somebody else's loop reported."""

    id: str
    origin: Origin = "external"
    experiment_id: str
    experiment: str
    candidate: str
    lr: float | None
    seed: int | None
    workload: str | None
    config: dict[str, JsonValue]
    tags: tuple[str, ...]
    source: str
    state: ExternalState
    started_at: float
    """The time of the start, on the clock of the process that reported it; other times are the database's."""
    created_at: float
    updated_at: float
    lines: int
    """The number of received lines, torn ones among them."""
    torn_lines: int
    metrics: dict[str, MetricSummary]
    damaged: str | None = None
    """The unreadable part and the reason, in a sentence; null for nearly all."""

    @property
    def name(self) -> str:
        """The name that its tool has for it, else its id."""
        match self.config.get(IMPORTED):
            case {"name": str(name)}:
                return name
        return self.id


class ExternalExperiment(Record):
    """Runs that name the same experiment."""

    id: str
    origin: Origin = "external"
    name: str
    created_at: float
    updated_at: float
    key_id: str | None
    """The key that sent its first run."""
    runs: int
    by_state: dict[ExternalState, int]
    candidates: tuple[str, ...]
    sources: tuple[str, ...] = ()
    """The sources of its runs: `log`, or the tool that they were imported from."""
    labels: tuple[str, ...] = ()

    @property
    def source_kinds(self) -> tuple[SourceKind, ...]:
        """Where its runs are from: people may log into one experiment and import into it, too."""
        return tuple(dict.fromkeys(map(source_kind, self.sources)))

    @property
    def counts(self) -> StateCounts:
        """Its runs by their states, like those of an experiment of the bench."""
        by_status = {STATUSES[state]: count for state, count in self.by_state.items()}
        return StateCounts(total=self.runs, by_status=by_status)

    def runs_planned(self) -> int:
        """Return the number of runs so far."""
        return self.runs


Listed = AnyExperiment | ExternalExperiment
"""An experiment of any source."""


class ExternalSeries(Record):
    """The series of a run, by metric: the last value of each step. A run that went back to an earlier step has no
    values of the steps beyond it that were logged before."""

    model_config = ConfigDict(ser_json_inf_nan="strings")

    run_id: str
    origin: Origin = "external"
    steps: dict[str, tuple[int, ...]]
    """Ascending."""
    values: dict[str, tuple[float, ...]]
    """The values, as many as steps; those that are not finite as a text."""


class JudgementChoice(Record):
    """The choices of a judgement beside its experiment."""

    metric: Annotated[StoredText, Field(min_length=1, max_length=128)] | None = Field(
        default=None, description="What to judge by; lower is better. Default: the validation loss."
    )
    baseline: Annotated[StoredText, Field(min_length=1, max_length=128)] | None = Field(
        default=None, description="Default: whose first run began first."
    )
    workload: Annotated[StoredText, Field(max_length=128)] | None = Field(
        default=None, description="Where runs have several; empty for none."
    )
    margin: Annotated[float, Field(gt=0, le=1e6)] | None = Field(
        default=None, description="A difference below it is none that matters."
    )


class JudgedCandidate(Record):
    """A candidate of a judgement, at its judged learning rate."""

    candidate: str
    is_baseline: bool
    lr: float | None
    """Null where no run can be judged, or none of them logged its rate."""
    loss: Interval | None
    """Mean over the judged seeds, with its 95 % interval."""
    difference: Difference | None
    """The difference to the baseline, paired by seed."""
    conclusion: Conclusion
    verdict: str
    """The meaning of `conclusion` and `difference`, in a sentence."""
    edge_of_grid: bool
    learning_rates: tuple[LearningRateRow, ...]
    """The learning rates, if the rate was chosen; 0 stands for runs that logged none."""
    last_steps: tuple[int, ...]
    """The steps at which its judged runs logged their last loss: one number if all had the same budget."""
    tokens: tuple[float, ...] = ()
    """The same of the metric `tokens`; empty if not all logged it."""


class ExternalJudgement(Record):
    """The judgement of external runs by the statistics of comparisons; best first."""

    experiment_id: str
    experiment: str
    origin: Origin = "external"
    metric: str
    """Lower is better."""
    workload: str | None
    baseline: str
    tuning_seeds: tuple[int, ...]
    """Seeds that only chose learning rates; empty if the judged seeds chose them too, or there was no choice."""
    concerns: tuple[str, ...]
    """The objections to the verdicts, first: too few seeds, unequal tuning, other budgets, runs left out."""
    unchecked: tuple[str, ...]
    """The assumptions of the verdicts that no log shows."""
    rows: tuple[JudgedCandidate, ...]
    notes: tuple[str, ...]
