"""Sends of imported runs what the service does not have: all of a new one, the new points of one that grew.

What is there is asked for, not remembered, so a run may be imported from anywhere, any number of times, by many at
once: the lines that are missing are a spool whose name is made of its content. A run that went another way since, from
an earlier step on, is deleted and sent whole: what it left behind is of no model.
"""

import hashlib
import json
import math
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import count

from api.client.client import Client
from api.client.messages import ClientError
from api.client.own_runs import MOST_METRICS
from api.client.spool import batches
from api.imports.mapping import MappedRun
from orchestrator.external_runs import MOST_VALUES, ExternalRun, SpoolLine

Values = dict[str, dict[int, float]]
"""The values by metric and step."""


@dataclass(frozen=True, kw_only=True)
class ImportedRun:
    """The state of a run after the import."""

    run_id: str
    name: str
    experiment: str
    is_new: bool
    new_values: int
    """Figures that the service had not, or had otherwise."""
    replaced_values: int
    """Those of them that it had otherwise."""
    went_back: bool
    """Whether it was sent whole, in place of what the service had."""


def send_run(client: Client, run: MappedRun) -> ImportedRun:
    """Send what is new of a run. Raises `ClientError`, with status 409 where it was imported as another candidate's."""
    stored_run, header = None, run.header
    try:
        stored_run = client.external_run(run.run_id)
    except ClientError as error:
        if error.status != 404:
            raise
    if run.is_numbered:  # it keeps the number that it was first sent with, which no other run gets
        seed = None if stored_run is None else stored_run.seed
        if stored_run is None:  # or the next number: files that are added may change the order
            experiment, candidate = (
                json.dumps(name, ensure_ascii=False) for name in (header.experiment, header.candidate)
            )
            run_filter = f"experiment = {experiment} and candidate = {candidate}"
            used = {row.values["seed"] for row in client.run_table(where=run_filter, columns=("seed",))}
            seed = next(number for number in count(header.seed or 0) if number not in used)
        header = header.model_copy(update={"seed": seed, "config": {**header.config, "seed": str(seed)}})
    values: Values = {}
    if stored_run is not None:
        for names in _metric_groups(stored_run):
            series = client.external_series(run.run_id, names)
            values |= {name: dict(zip(steps, series.values[name], strict=True)) for name, steps in series.steps.items()}
    lines = _new_lines(run, values)
    replaced = sum(line.step in values.get(name, ()) for line in lines for name in line.metrics)
    labels: tuple[str, ...] = ()
    is_same = all(getattr(stored_run, name, None) == getattr(header, name) for name in ("candidate", "lr", "seed"))
    went_back = stored_run is not None and is_same and _went_back(run, values, lines)  # the service refuses another one
    if stored_run is not None and went_back:
        labels = client.external_experiment(stored_run.experiment_id).labels  # which goes with its last run
        client.delete_external_run(run.run_id)
        header = header.model_copy(update={"workload": header.workload or stored_run.workload})
        lines = _new_lines(run, {})
    new_values = sum(len(line.metrics) for line in lines)
    has_all = stored_run is not None and (
        stored_run.state == run.state
        and all(stored_run.config.get(name) == value for name, value in header.config.items())
        and {*header.tags} <= {*stored_run.tags}
        and header.workload in (None, stored_run.workload)
    )
    if went_back or not has_all:
        moment = run.ended_at if stored_run is None or went_back else max(run.ended_at, time.time())
        lines.append(SpoolLine(at=moment, state=run.state))
    if lines:
        content = "\n".join(line.model_dump_json(exclude_defaults=True) for line in lines)
        for batch in batches(header, hashlib.sha256(content.encode()).hexdigest()[:32], lines):
            client.send_lines(run.run_id, batch)
    if labels:
        client.label_external_experiment(header.experiment, add=labels)
    return ImportedRun(
        run_id=run.run_id,
        name=run.name,
        experiment=header.experiment,
        is_new=stored_run is None,
        new_values=new_values,
        replaced_values=replaced,
        went_back=went_back,
    )


def _metric_groups(run: ExternalRun) -> Iterator[list[str]]:
    """Yield the names of its metrics, in pieces that one answer may have."""
    names: list[str] = []
    values = 0
    for name, summary in run.metrics.items():
        if names and (len(names) == MOST_METRICS or values + summary.points > MOST_VALUES):
            yield names
            names, values = [], 0
        names.append(name)
        values += summary.points
    if names:
        yield names


def _new_lines(run: MappedRun, stored_values: Values) -> list[SpoolLine]:
    """Return the values that are not there, of each step the last one; the service keeps the one with the latest time,
    so a correction has today's."""
    last = {(name, point.step): (point.at, value) for point in run.points for name, value in point.metrics.items()}
    metrics_by_moment: dict[tuple[float, int], dict[str, float]] = {}
    now = time.time()
    for (name, step), (moment, value) in sorted(last.items()):
        stored = stored_values.get(name, {}).get(step)
        if stored is None or not (value == stored or (math.isnan(value) and math.isnan(stored))):
            metrics_by_moment.setdefault((moment if stored is None else now, step), {})[name] = value
    return [
        SpoolLine(at=moment, step=step, metrics=dict([*metrics.items()][begin : begin + MOST_METRICS]))
        for (moment, step), metrics in metrics_by_moment.items()
        for begin in range(0, len(metrics), MOST_METRICS)
    ]


def _went_back(run: MappedRun, stored_values: Values, new: Iterable[SpoolLine]) -> bool:
    """Return whether the service has values that the run has no more, behind a step of which their metric has a new
    one. One that begins later than what is there, or has nothing new, may be a part of it."""
    values = {(name, point.step) for point in run.points for name in point.metrics}
    first_new = {
        name: line.step or 0 for line in sorted(new, key=lambda line: -(line.step or 0)) for name in line.metrics
    }
    return any(
        name in first_new
        and (name, min(steps)) in values
        and any(step > first_new[name] and (name, step) not in values for step in steps)
        for name, steps in stored_values.items()
        if steps
    )
