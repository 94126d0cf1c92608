"""What raw figures owe each other: the checks of a bundle's content that need no second opinion.

    specification ─► its hash ─► the runs that it plans, and those that its tuning asks for ─► no other, and none less
    run ─► its specification ─► its result, whose figures follow from its points ─► its attempts

Who changes one of them and signs again is refused here; who changes all of them alike has written another training,
which only training it again shows (`rerun.py`). Each check raises `BundleError` with its name and the reason.
"""

import hashlib
import math
import re
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from api.bundles.layout import Bundle, BundleError
from orchestrator.analysis.candidates import run_fact
from orchestrator.analysis.comparison import added_runs
from orchestrator.columns import Columns
from orchestrator.jobs import TERMINAL, AttemptOutcome, RunStatus
from orchestrator.kinds.comparison import TunedExperiment
from orchestrator.kinds.experiment import AnswerKind, PlannedRun
from orchestrator.records import AttemptRecord, RunRecord
from worker.records.result import Result, Verdict
from worker.schema import canonical_json

MEDIANS = ("step_seconds", "data_seconds", "forward_seconds", "backward_seconds", "optimizer_seconds")
"""Series of a run of which a result has the median."""
ROUNDING, NO_TIME = 1e-9, 1e-6
"""Relative, and in seconds: sums that were added in another order."""
LATEST = 253_402_300_799.0
"""The end of the year 9999: no clock says more, and no calendar writes it."""
ID = r"[A-Za-z0-9_-]{1,64}"
"""Of an experiment: boards name files by it."""


def check_experiment(bundle: Bundle) -> None:
    """The specification has the hash that it is known by, and the state counts the runs that are here."""
    experiment, runs = bundle.experiment, bundle.runs
    check = _checker("experiment")
    check(re.fullmatch(ID, experiment.id) is not None, f"{experiment.id!r} is no id")
    found = hashlib.sha256(canonical_json(bundle.spec_fields)).hexdigest()
    check(experiment.spec_hash == found, "the specification has another hash than is said")
    if isinstance(experiment.spec, TunedExperiment) and experiment.spec.tuning is not None:
        check(not {*experiment.spec.tuning.seeds} & {*experiment.spec.seeds}, "its tuning seeds judge")
    check(experiment.name == experiment.spec.name, f"it is called {experiment.name!r}, its specification another name")
    check(experiment.kind == experiment.spec.kind, f"it is a {experiment.spec.kind}, not a {experiment.kind}")
    check(experiment.counts.done(), "it has not ended")
    check(experiment.counts.total == len(runs), f"it counts {experiment.counts.total} runs, and {len(runs)} are here")
    by_status = {status: count for status, count in experiment.counts.by_status.items() if count}
    check(by_status == Counter(run.status for run in runs), "its states are not those of its runs")
    lost = Counter(run.result.verdict for run in runs if run.result and run.result.verdict is not Verdict.CONVERGED)
    check(
        {verdict: count for verdict, count in experiment.counts.by_verdict.items() if count} == lost,
        "its verdicts are not those of its runs",
    )
    ended = [run.ended_at for run in runs if run.ended_at is not None]
    check(experiment.ended_at is not None, "it has no end")
    check(not ended or (experiment.ended_at or 0) >= max(ended), "it ended before a run of it")
    written_at = bundle.document.provenance.written_at
    check(0 <= experiment.created_at <= written_at <= LATEST, "it was not submitted at a time before it was published")
    check((experiment.ended_at or 0) <= written_at, "it was published before it ended")


def check_runs(bundle: Bundle) -> None:
    """Every run is one of the experiment, is what its specification says, and has the end of its state."""
    positions = [run.position for run in bundle.runs]
    if positions != list(range(len(positions))):
        raise BundleError("runs", f"their positions are {positions}, not 0, 1, 2, …")
    ids = Counter(run.id for run in bundle.runs)
    names = {each.name() for each in bundle.experiment.spec.candidates}
    for run in bundle.runs:
        check = _checker("runs", run.id)
        check(re.fullmatch(ID, run.id) is not None, f"{run.id!r} is no id")
        check(ids[run.id] == 1, "it is there twice")
        check(run.experiment_id == bundle.experiment.id, f"it is a run of {run.experiment_id}")
        check(run.candidate in names, f"there is no candidate {run.candidate!r}")
        check(run.damaged is None and run.spec is not None, "its specification is damaged")
        assert run.spec is not None
        spec = run.spec
        said = (run.optimizer, run.lr, run.seed, run.model, run.steps_total)
        meant = (spec.optimizer.name, spec.optimizer.lr, spec.seed, spec.workload.model, spec.workload.budget.steps)
        check(said == meant, f"it is said to be {said}, and its specification is {meant}")
        check(run.status in TERMINAL, f"it is {run.status.value}")
        check((run.result is None) == (run.status is not RunStatus.SUCCEEDED), "its state and its result do not agree")
        times = [bundle.experiment.created_at, run.started_at, run.ended_at]
        known = [time for time in times if time is not None]
        check(run.ended_at is not None and known == sorted(known), "its times are not one after another")
        if run.result is not None:
            _check_result(run, run.result, bundle.points.get(run.id))
    _check_pairs(bundle)


def _check_result(run: RunRecord, result: Result, points: Columns | None) -> None:
    """What follows from the specification, and from the points: losses, medians, tokens to the bit."""
    check = _checker("results", run.id)
    assert run.spec is not None
    workload = run.spec.workload
    check(result.spec_hash == run.spec.content_hash(), "it is the result of another specification")
    pinned = workload.data.data_hash
    check(pinned in (None, result.data_hash), "it read other data than its specification names")
    check(result.steps <= run.steps_total, f"it has {result.steps} steps of {run.steps_total}")
    check(result.tokens == workload.tokens() * result.steps / run.steps_total, "its tokens are not those of its steps")
    finite, fallen = result.final_val_loss is not None, _has_fallen(result)
    converged = result.verdict is Verdict.CONVERGED
    check(not converged or (finite and fallen), "it is said to have converged, and its loss has not fallen")
    check(converged or not (finite and fallen) or result.verdict is Verdict.STOPPED_EARLY, "its loss has fallen")
    check(result.resumed_from_step <= result.steps, "it went on from a step that it never reached")
    if (parts := result.memory_breakdown) is not None:
        fields = ("parameters", "gradients", "optimizer_state", "activations", "other")
        check(
            parts.peak_bytes == sum(getattr(parts, f"{name}_bytes") for name in fields),
            "the parts of its memory are not the whole",
        )
        state = parts.optimizer_state_bytes
        check(state <= result.optimizer_state_bytes, "its state is smaller than it was in the recorded step")
    device = result.environment.device
    check(device in ("cpu", "cuda"), f"it was trained on {device!r}")
    if points is None:
        check(result.steps == 0, "it has no points")
        medians = (getattr(result, f"{name}_median") for name in MEDIANS)
        figures = (result.initial_val_loss, result.final_val_loss, result.final_train_loss, *medians)
        check(all(figure is None for figure in figures), "it has losses or times, and no points")
        return
    steps = points.step.tolist()
    check(steps[-1] == result.steps, f"its points end at step {steps[-1]:g}, the result at {result.steps}")
    val_losses = points.values["val_loss"]
    first = val_losses[0] if steps[0] == 0 else math.nan
    check(_is_same_figure(first, result.initial_val_loss), "its first validation loss is not that of its points")
    if result.steps == run.steps_total:
        check(
            _is_same_figure(val_losses[-1], result.final_val_loss),
            "its final validation loss is not that of its points",
        )
    else:
        check(result.final_val_loss is None, "it has a final loss, and did not reach the end of its budget")
    check(len(steps) == result.steps + 1, f"it has {len(steps)} points, of step 0 and {result.steps} more")
    if converged:
        evaluated = [step for step in steps if step % workload.evaluation.every_steps == 0 or step == steps[-1]]
        there = points.step[np.isfinite(val_losses)].tolist()
        check(there == evaluated, "its validation losses are not at the steps of its specification")
    train = points.values["train_loss"][1:]
    tail = train[-max(1, train.size // 10) :] if train.size else train
    if train.size and np.isfinite(train).all():
        check(
            _is_same_figure(statistics.fmean(tail.tolist()), result.final_train_loss),
            "its training loss is not that of its points",
        )
    for name in MEDIANS:
        values = points.values[name][1:]
        if values.size and np.isfinite(values).all():
            median = getattr(result, f"{name}_median")
            check(
                _is_same_figure(statistics.median(values.tolist()), median),
                f"its median of {name} is not that of its points",
            )


def _first_losses(bundle: Bundle, run: RunRecord) -> tuple[float | None, float | None]:
    """On the validation text, and on the first batch: that of step 1 is taken before its update."""
    points = bundle.points.get(run.id)
    at_first = points is not None and len(points) > 1 and points.step[1] == 1
    on_batch = float(points.values["train_loss"][1]) if points is not None and at_first else math.nan
    return run.result.initial_val_loss if run.result else None, on_batch if math.isfinite(on_batch) else None


def check_trainings(bundle: Bundle) -> None:
    """No training counts for two runs: seeds have other losses, and no two trainings take the same nanoseconds."""
    found: dict[tuple[Any, ...], RunRecord] = {}
    for run in bundle.runs:
        if (points := bundle.points.get(run.id)) is None:
            continue
        losses, seconds = points.values["train_loss"][1:], points.values["step_seconds"][1:]
        of_seeds = (run.candidate, run.lr, run.model, run.steps_total, losses.tobytes())
        for key, values in ((of_seeds, losses), ((seconds.tobytes(),), seconds)):
            if values.size < 2 or not np.isfinite(values).all():  # alike by chance, or not measured
                continue
            other = found.setdefault(key, run)
            # Trials of a sweep may be the same training twice, with losses of equal bits: all have one seed.
            if other.id != run.id and (values is seconds or other.seed != run.seed):
                raise BundleError("trainings", f"{run.id} and {other.id} are one training")


def _has_fallen(result: Result) -> bool:
    final, initial = result.final_val_loss, result.initial_val_loss
    return final is not None and initial is not None and final < initial


def _check_pairs(bundle: Bundle) -> None:
    """Runs on one data set read the same tokens, those of one model have the same parameters, and those of one seed
    begin alike: on one kind of machine their losses before the first step are the same to the bit, on the validation
    text and on the first batch."""
    of_data: dict[tuple[str, ...], RunRecord] = {}
    of_model: dict[tuple[str, ...], RunRecord] = {}
    first: dict[tuple[Any, ...], RunRecord] = {}
    for run in bundle.runs:
        if run.result is None or run.spec is None:
            continue
        workload, environment = run.spec.workload, run.result.environment
        task, data = workload.task.model_dump_json(), workload.data.model_dump_json()
        other = of_data.setdefault((task, data), run)
        if other.result is not None and other.result.data_hash != run.result.data_hash:
            raise BundleError("pairing", f"{run.id} and {other.id} did not read the same data")
        other = of_model.setdefault((task, data, workload.model), run)
        if other.result is not None and other.result.parameters != run.result.parameters:
            raise BundleError("pairing", f"{run.id} and {other.id} did not train models of one size")
        if run.result.initial_val_loss is None:
            continue
        key = (
            run.seed,
            run.model,
            task,
            data,
            workload.evaluation.model_dump_json(),
            workload.precision,
            str(workload.initial_weights),
            workload.execution.model_dump_json(),
            run.result.data_hash,
            run.result.processes,
            run.result.micro_batch_sequences,
            *(getattr(environment, name) for name in ("device", "device_name", "threads", "torch", "platform")),
        )
        other = first.setdefault(key, run)
        if _first_losses(bundle, other) != _first_losses(bundle, run):
            raise BundleError("pairing", f"{run.id} and {other.id} have one seed, and began at different losses")


def check_points(bundle: Bundle) -> None:
    """Every row is of a run that is here, and the steps of each rise within its budget."""
    by_id = {run.id: run for run in bundle.runs}
    for run_id, keys in bundle.point_keys.items():
        check = _checker("points", run_id)
        run = by_id.get(run_id)
        check(run is not None, "there is no such run")
        assert run is not None
        check(keys == (run.id, run.candidate, run.optimizer, run.lr, run.seed), "its rows name it otherwise")
        columns = bundle.points[run_id]
        steps = columns.step
        check(bool(np.all(np.diff(steps) > 0)) and steps[0] >= 0, "its steps do not rise")
        check(bool(steps[-1] <= run.steps_total), f"it has a point beyond its {run.steps_total} steps")
        if run.spec is not None:
            tokens = steps * run.spec.workload.tokens() / run.steps_total
            check(bool(np.array_equal(columns.values["tokens"], tokens)), "its tokens are not those of its steps")
        for name in MEDIANS:
            negative = columns.values[name] < 0
            check(not bool(negative.any()), f"a step took less than no time ({name})")


def check_attempts(bundle: Bundle) -> None:
    """Each run has the attempts that it counts, one after another, and their time is its time."""
    by_run: dict[str, list[AttemptRecord]] = {}
    for attempt in bundle.attempts:
        by_run.setdefault(attempt.run_id, []).append(attempt)
    if strangers := by_run.keys() - {run.id for run in bundle.runs}:
        raise BundleError("attempts", f"there is no run {min(strangers)}")
    for run in bundle.runs:
        check, mine = _checker("attempts", run.id), by_run.get(run.id, [])
        numbers = [each.attempt for each in mine]
        check(numbers == list(range(1, run.attempt + 1)), f"it has the attempts {numbers}, and counts {run.attempt}")
        seconds = math.fsum(each.device_seconds for each in mine)
        check(
            math.isclose(seconds, run.device_seconds, rel_tol=ROUNDING, abs_tol=NO_TIME), "their time is not the run's"
        )
        check(all(each.ended_at is not None and each.outcome is not None for each in mine), "one has not ended")
        times = [
            bundle.experiment.created_at,
            *(time for each in mine for time in (each.leased_at, each.started_at, each.ended_at) if time is not None),
        ]
        check(times == sorted(times), "their times are not one after another")
        check(all(each.device_seconds >= 0 for each in mine), "one took less than no time")
        succeeded = [each.attempt for each in mine if each.outcome is AttemptOutcome.SUCCEEDED]
        check(succeeded == ([run.attempt] if run.result is not None else []), "the one with the result is not the last")
        if run.result is not None:
            check(
                run.result.device_seconds <= run.device_seconds * (1 + ROUNDING), "its result took longer than it did"
            )


def check_plan(bundle: Bundle) -> None:
    """The runs are those that the specification plans, its tuning asks for and its looks add: no candidate was tuned
    on more, and no run was left out. A sweep's driver draws its trials, and an earlier procedure had other rules: their
    specifications are checked, not their choice."""
    if not is_planned(bundle):
        return
    keys = [(run.candidate, run.spec.content_hash()) for run in bundle.runs if run.spec is not None]
    here = Counter(keys)
    if twice := [run for run, count in here.items() if count > 1]:
        raise BundleError("plan", f"{twice[0][0]} has one run {here[twice[0]]} times")
    if bundle.is_earlier:
        return
    planned, asked = set[tuple[str, str]](), _keys(bundle.experiment.spec.first_runs())
    if lacking := asked - here.keys():
        raise BundleError("plan", f"{min(lacking)[0]} lacks a run that is planned")
    incomplete = set[str]()
    while asked := asked - planned:
        for name in {name for name, _ in asked}:
            mine = {key for key in asked if key[0] == name}
            # What is asked for at once is queued at once: all of it is here, or none, behind a run that failed.
            is_whole = all_succeeded(run for run in bundle.runs if run.candidate == name)
            if mine - here.keys() and (is_whole or mine & here.keys()):
                incomplete.add(name)
        planned |= asked
        asked = _follow_ups(bundle, [run for run, key in zip(bundle.runs, keys, strict=True) if key in planned])
    if extra := sorted(here.keys() - planned):
        raise BundleError("plan", f"{extra[0][0]} has a run that nothing asks for")
    if incomplete:
        raise BundleError("plan", f"{min(incomplete)} lacks a run that its tuning or a look asks for")


def _follow_ups(bundle: Bundle, runs: Sequence[RunRecord]) -> set[tuple[str, str]]:
    spec = bundle.experiment.spec
    found = _keys(spec.follow_up_runs([run_fact(run) for run in runs]))
    return found | _keys(added_runs(bundle.experiment, runs)) if spec.adds_seeds() and not found else found


def _keys(planned: Iterable[PlannedRun]) -> set[tuple[str, str]]:
    return {(each.candidate, each.spec.content_hash()) for each in planned}


def is_planned(bundle: Bundle) -> bool:
    """Whether the specification says which runs there are: a sweep's driver draws them."""
    return bundle.experiment.spec.answer is not AnswerKind.FINDINGS


def all_succeeded(runs: Iterable[RunRecord]) -> bool:
    """Whether no run failed or was cancelled: behind one that did, what would have followed need not be there."""
    return all(run.status is RunStatus.SUCCEEDED for run in runs)


def _is_same_figure(value: float, said: float | None) -> bool:
    """Whether a figure is the one of the record; null is what is no finite number."""
    return said is None if not math.isfinite(value) else value == said


def _checker(check: str, subject: str = "") -> Callable[[bool, str], None]:
    def require(holds: bool, reason: str) -> None:
        if not holds:
            raise BundleError(check, f"{subject}: {reason}" if subject else reason)

    return require
