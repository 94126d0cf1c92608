"""The candidate, learning rate, seed and loss among a source's fields: proposed, corrected, applied.

A run's points are looked through before they are sent: values that share a step and differ.

Fields are named as the source has them: `config.optimizer`, `project`, `name`; metrics by their name alone. What a name
like `muon-lr0.02-s1` says is there as `name.candidate`, `name.lr` and `name.seed`.
"""

import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from api.client.own_runs import LARGEST_STEP, plain_value, valid_header
from api.imports.source import (
    CANDIDATE_NAMES,
    NULL,
    RATE_NAMES,
    SEED_NAMES,
    SourceError,
    SourcePoint,
    SourceRun,
    parse_number,
    reading,
)
from orchestrator.external_runs import IMPORTED, USUAL_METRICS, ExternalState, RunHeader
from orchestrator.sessions import join_sessions
from orchestrator.specs.differences import flat_fields

JUDGED = "val_loss"
PROPOSALS: Mapping[str, Sequence[str]] = {
    "experiment": ("config.experiment", "project", "config.project", "config.project_id"),
    "candidate": (*(f"config.{name}" for name in CANDIDATE_NAMES), "folder", "name.candidate", "group"),
    "lr": (*(f"config.{name}" for name in RATE_NAMES), "name.lr"),
    "seed": (*(f"config.{name}" for name in SEED_NAMES), "name.seed"),
    "workload": ("config.workload",),
}
"""The candidates for each field of a run, the first that a run has."""
METRIC_PROPOSALS: Mapping[str, Sequence[str]] = {
    "step": ("train/global_step", "trainer/global_step"),
    "val_loss": (*USUAL_METRICS, "valid_loss", "loss/validation", "test_loss"),
    "tokens": ("tokens", "num_input_tokens_seen", "train/num_input_tokens_seen", "tokens_seen", "total_tokens"),
}
NAMES = (*PROPOSALS, *METRIC_PROPOSALS)
SEED = re.compile(r"(?:^|[-_. ])(?:seed|s)[-_= ]?(\d+)(?=$|[-_. ])", re.IGNORECASE)
_RATE = re.compile(r"(?:^|[-_ ])(?:lr|learning_rate)[-_=]?(\d[\d.]*(?:e[-+]?\d+)?)(?=$|[-_ ])", re.IGNORECASE)
LOSS = re.compile(r"loss|nll|perplexity|ppl|bpb|cross_?entropy|(?:^|[/_])ce(?:$|[/_])", re.IGNORECASE)
VALIDATION = re.compile(r"val|eval|test|dev", re.IGNORECASE)
MOST_NAME = 128


@dataclass(frozen=True, kw_only=True)
class FieldMapping:
    """The mapping of a source's fields to those of a run."""

    fields: Mapping[str, str]
    """The field or metric of the source for each of `NAMES`; without those that have none."""
    constants: Mapping[str, str]
    """The values that were given for all runs."""


@dataclass(frozen=True, kw_only=True)
class MappedRun:
    """A run as it is sent."""

    run_id: str
    name: str
    header: RunHeader
    points: Sequence[SourcePoint]
    state: ExternalState
    ended_at: float
    notes: tuple[str, ...]
    """Changes that the run's owner may want to know."""
    metrics: frozenset[str]
    is_numbered: bool
    """Whether its seed is a number that the reader gave, which may change."""


def propose_mapping(
    runs: Sequence[SourceRun], corrections: Mapping[str, str], constants: Mapping[str, str]
) -> FieldMapping:
    """Return the corrections and constants, and a proposal for each name that neither has. Raises `SourceError` if a
    field that was asked for is in no run."""
    field_names = {name for run in runs for name in fields_of(run)}
    metrics = {name for run in runs for name in run.metrics}
    chosen: dict[str, str] = {}
    for name in NAMES:
        of_metric = name in METRIC_PROPOSALS
        names = metrics if of_metric else field_names
        if name in constants:
            continue
        if name in corrections:
            field = corrections[name].removeprefix("-") if name == JUDGED else corrections[name]
            is_column = name == "step" and any(run.step_field == field for run in runs)
            if field not in names and not is_column:
                kind = "metric" if of_metric else "field"
                raise SourceError(
                    f"--map {name}={corrections[name]}: no run has that {kind}; there are {_name_list(names)}"
                )
            chosen[name] = corrections[name]
        elif proposal := _propose((METRIC_PROPOSALS if of_metric else PROPOSALS)[name], names):
            chosen[name] = proposal
    losses = possible_losses(runs)
    if "val_loss" not in chosen and len(losses) == 1 and VALIDATION.search(losses[0]):
        chosen["val_loss"] = losses[0]
    axes = (pair for run in runs for pair in run.axes.items())  # what its owner has a metric drawn over
    axis = next((axis for pattern, axis in axes if fnmatchcase(chosen.get("val_loss", ""), pattern)), None)
    if axis in metrics and "step" not in corrections:
        chosen["step"] = axis
    return FieldMapping(fields=chosen, constants=constants)


def _propose(names: Sequence[str], fields: Collection[str]) -> str | None:
    """Return the first of the names that is there in any case, or that one longer name ends with, as behind the path of
    a tracker's or within a configuration; None if several do, as those of two models."""
    by_lower = {field.lower(): field for field in sorted(fields)}
    exact = (by_lower[name] for name in names if name in by_lower)
    longer = (re.compile(rf"(?:.*/|config\..*\.){re.escape(name.removeprefix('config.'))}") for name in names)
    behind_paths = next(filter(None, ([*filter(pattern.fullmatch, by_lower)] for pattern in longer)), [])
    return next(exact, by_lower[behind_paths[0]] if len(behind_paths) == 1 else None)


def possible_losses(runs: Iterable[SourceRun]) -> list[str]:
    """Return the metrics that could be the judged loss, by their names; only those of a validation if there are any."""
    losses = {name for run in runs for name in run.metrics if LOSS.search(name)}
    return sorted(name for name in losses if VALIDATION.search(name)) or sorted(losses)


def fields_of(run: SourceRun) -> dict[str, Any]:
    """Return every field of a run that a mapping can use, nested ones by dotted path."""
    nested_fields = {"name": run.name, **run.facts, "config": run.config, **parse_name(run.name)}
    return {
        name: value
        for name, value in flat_fields(nested_fields)
        if value is not None and value != "" and not isinstance(value, list | tuple)
    }


def parse_name(name: str) -> dict[str, str]:
    """Return the fields in the last part of a name like `muon-lr0.02-s1` or `muon/seed1`."""
    parts = name.replace("/", " ")
    seeds = [*SEED.finditer(parts)]  # a model may be called `s16`: the whole word counts, else the last letter
    seed = next((match for match in seeds if "seed" in match[0].lower()), seeds[-1] if seeds else None)
    rate = _RATE.search(parts)
    fields = {f"name.{field}": match[1] for field, match in (("seed", seed), ("lr", rate)) if match}
    if fields:
        prefix = name[: min(match.start() for match in (seed, rate) if match)].strip("-_/. ")
        if candidate := prefix.rpartition("/")[2]:
            fields["name.candidate"] = candidate
    return fields


def apply_mapping(run: SourceRun, mapping: FieldMapping, source: str, default_experiment: str) -> MappedRun:
    """Return the run under our names, with all that its source says kept in its configuration. Raises `SourceError`,
    and nothing else whatever the source says."""
    with reading(run.name, f"a run of {source}"):
        sessions = [list(_points(session, run, mapping)) for session in run.sessions]
        counts_steps = run.counts_steps and mapping.fields.get("step") not in run.metrics
        points, joining = join_sessions(sessions, counts_steps=counts_steps)
        notes = [*run.notes, *joining, *check_collisions(run.name, points)]
        logged_at = [point.at for point in run.points if 0 < point.at < math.inf]
        facts = {"name": run.name, **run.facts, "map": dict(mapping.fields), "notes": notes}
        header = valid_header(
            **_own_fields(run, mapping, default_experiment),
            config={**run.config, IMPORTED: facts},
            tags=run.tags,
            source=source,
            started_at=run.started_at if 0 < run.started_at < math.inf else min(logged_at, default=0.0),
        )
        numbered = run.numbered if mapping.fields.get("seed") == "config.seed" else None
        return MappedRun(
            run_id=f"{source}-{_digest(source, run, header, numbered or header.seed, points)}",
            name=run.name,
            header=header,
            points=tuple(points),
            state=run.state,
            ended_at=run.ended_at if 0 < run.ended_at < math.inf else max(logged_at, default=header.started_at),
            notes=tuple(notes),
            metrics=frozenset(name for point in points for name in point.metrics),
            is_numbered=numbered is not None,
        )


def _own_fields(run: SourceRun, mapping: FieldMapping, default_experiment: str) -> dict[str, Any]:
    """Return the experiment, candidate, learning rate, seed and workload of a run. Raises `SourceError` without a
    candidate."""
    source_fields = fields_of(run)
    read = {name: source_fields.get(field) for name, field in mapping.fields.items() if name in PROPOSALS}
    values = {name: value for name, value in read.items() if value is not None} | dict(mapping.constants)
    if "candidate" not in values:
        raise SourceError(
            f"{run.name}: nothing says its candidate; use --map candidate=FIELD or --set candidate=NAME; its fields "
            f"are {_name_list(source_fields)}"
        )
    return {"experiment": default_experiment} | {
        name: _number(value) if name in ("lr", "seed") else str(value).strip() for name, value in values.items()
    }


def _points(points: Iterable[SourcePoint], run: SourceRun, mapping: FieldMapping) -> Iterator[SourcePoint]:
    """Yield the points under our names for metrics; where a metric is the step, points without it are at the last
    one."""
    step_metric = mapping.fields.get("step")
    if step_metric not in run.metrics:  # a run without it has the steps of its tool
        step_metric = None
    renamed = {metric: name for name, metric in mapping.fields.items() if name in METRIC_PROPOSALS and name != "step"}
    # What the source itself calls so, if another metric is mapped to that name.
    renamed |= {name: f"source/{name}" for name in renamed.values() if name not in renamed}
    negated = {metric[1:] for metric in renamed if metric.startswith("-")}
    renamed |= dict.fromkeys(negated, JUDGED)
    last = 0
    for point in points:
        metrics = {
            _metric_name(renamed.get(name, name)): -value if name in negated else value
            for name, value in point.metrics.items()
            if name in run.metrics and not (value is NULL and name in run.sparse_metrics)
        }
        step = point.step
        if step_metric is not None:
            logged_step = point.metrics.get(step_metric)
            if logged_step is not None and 0 <= logged_step <= LARGEST_STEP:
                last = int(logged_step)
            step = last
        # A point without metrics says where its session began.
        if (metrics or not (point.metrics or step_metric)) and 0 <= step <= LARGEST_STEP:
            moment = point.at if math.isfinite(point.at) else 0.0
            yield SourcePoint(at=moment, step=step, metrics=metrics)


def _metric_name(name: str) -> str:
    """Return a name that can be stored; a longer one is shortened and stays unique."""
    name = plain_value(name).replace("\x00", "?") or "?"
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return name if len(name) <= MOST_NAME else f"{name[: MOST_NAME - 9]}~{digest}"


def _number(value: Any) -> Any:
    """Return a number, whole if it is; anything else stays, and is refused."""
    number = parse_number(value) if isinstance(value, str) else value
    return int(number) if isinstance(number, float) and number.is_integer() else number


def _digest(
    source: str, run: SourceRun, header: RunHeader, seed: int | str | None, points: Sequence[SourcePoint]
) -> str:
    """Return the identity of a run for later imports: the source's own id, else a digest of the parts that do not
    change as it grows."""
    key: tuple[object, ...] = (run.source_id,)
    if run.source_id is None:
        metrics = {name for point in points for name in point.metrics}
        first_of = "val_loss" if "val_loss" in metrics else min(metrics, default="")
        first = next(((point.step, point.metrics[first_of]) for point in points if first_of in point.metrics), None)
        key = (run.name.rpartition("/")[2], header.candidate, header.lr, seed, repr(first))
    return hashlib.sha256(json.dumps([source, header.experiment, *key]).encode()).hexdigest()[:24]


def _name_list(names: Iterable[str]) -> str:
    listing = sorted(names)
    return ", ".join(listing[:40]) + (f" and {len(listing) - 40} more" if len(listing) > 40 else "") or "none"


def check_collisions(name: str, points: Sequence[SourcePoint]) -> Iterator[str]:
    """Say which metrics have several values at a step. Raises `SourceError` if most steps of the loss have."""
    values: dict[tuple[str, int], float] = {}
    differing = set[tuple[str, int]]()
    for point in points:
        for metric, value in point.metrics.items():
            first_value = values.setdefault((metric, point.step), value)
            if first_value != value and (first_value == first_value or value == value):  # two NaN are the same
                differing.add((metric, point.step))
    counts = Counter(metric for metric, _ in differing)
    steps = sum(metric == JUDGED for metric, _ in values)
    if counts[JUDGED] * 2 > steps > 1:
        raise SourceError(
            f"{name}: {counts[JUDGED]:,} of {steps:,} steps have several values of {JUDGED} that differ: several runs "
            "or series are mixed; name what tells them apart by --map candidate=FIELD, --map seed=FIELD or --pattern"
        )
    if counts:
        shown = ", ".join(f"{metric} at {count:,}" for metric, count in counts.most_common(4))
        yield f"several values share a step and differ, of which the last counts: {shown}"
