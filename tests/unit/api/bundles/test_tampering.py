"""A bundle that was tampered with is refused, each with its reason: files, signature, raw content, figures.

The forger of most of these holds the publisher's key: after the change all that follows is derived again, and signed.
"""

import base64
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from api.bundles.layout import LATER_FIELDS, BundleError
from api.bundles.signing import fingerprint, sign
from api.bundles.verification import verify
from orchestrator.columns import Columns
from orchestrator.export.document import ExperimentDocument
from orchestrator.jobs import AttemptOutcome, RunStatus
from orchestrator.records import AttemptRecord, RunRecord
from tests.factories.bundles import BEGAN, KEY, STEPS, Content, trained_content
from worker.records.result import Verdict

Files = dict[str, bytes]
STRANGER = Ed25519PrivateKey.from_private_bytes(bytes(range(1, 33)))


@dataclass(frozen=True)
class Tampering:
    """One kind of it, and why it is refused."""

    what: str
    tamper: Callable[[Content], Files]
    check: str
    reason: str


# Raw content, after which everything is derived and signed again


def change_experiment(**update: Any) -> Callable[[Content], Files]:
    return lambda content: replace(content, experiment=content.experiment.model_copy(update=update)).files()


def change_counts(**update: Any) -> Callable[[Content], Files]:
    def tamper(content: Content) -> Files:
        return change_experiment(counts=content.experiment.counts.model_copy(update=update))(content)

    return tamper


def change_spec(change: Callable[[dict[str, Any]], object]) -> Callable[[Content], Files]:
    """Another question, with its own hash, to the same runs."""

    def tamper(content: Content) -> Files:
        fields = content.experiment.spec.model_dump(mode="json")
        change(fields)
        spec = type(content.experiment.spec).model_validate(fields)
        return change_experiment(spec=spec, spec_hash=spec.content_hash())(content)

    return tamper


def recounted(content: Content, runs: tuple[RunRecord, ...]) -> Content:
    """With these runs, and with counts, attempts and points that fit them."""
    ids = {run.id for run in runs}
    lost = Counter(run.result.verdict for run in runs if run.result and run.result.verdict is not Verdict.CONVERGED)
    counts = content.experiment.counts.model_copy(
        update={"total": len(runs), "by_status": dict(Counter(run.status for run in runs)), "by_verdict": dict(lost)}
    )
    return replace(
        content,
        experiment=content.experiment.model_copy(update={"counts": counts}),
        runs=runs,
        attempts=tuple(each for each in content.attempts if each.run_id in ids),
        points={id: points for id, points in content.points.items() if id in ids},
    )


def change_runs(change: Callable[[list[RunRecord]], object]) -> Callable[[Content], Files]:
    def tamper(content: Content) -> Files:
        runs = list(content.runs)
        change(runs)
        return recounted(content, tuple(runs)).files()

    return tamper


def drop_runs(*dropped: int) -> Callable[[Content], Files]:
    """Without these runs, and with positions as if there had never been more."""

    def change(runs: list[RunRecord]) -> None:
        left = [run for place, run in enumerate(runs) if place - len(runs) not in dropped and place not in dropped]
        runs[:] = [run.model_copy(update={"position": place}) for place, run in enumerate(left)]

    return change_runs(change)


def change_run(place: int = -1, **update: Any) -> Callable[[Content], Files]:
    def change(runs: list[RunRecord]) -> None:
        runs[place] = runs[place].model_copy(update=update)

    return change_runs(change)


def repeat_run(**update: Any) -> Callable[[Content], Files]:
    """One run counts twice."""

    def tamper(content: Content) -> Files:
        last = content.runs[-1]
        again = last.model_copy(update={"position": len(content.runs), **update})
        more = recounted(content, (*content.runs, again))
        if again.id == last.id:
            return more.files()
        attempt = next(each for each in content.attempts if each.run_id == last.id)
        attempts = (*more.attempts, attempt.model_copy(update={"run_id": again.id}))
        return replace(more, attempts=attempts, points={**more.points, again.id: content.points[last.id]}).files()

    return tamper


def change_run_spec(change: Callable[[dict[str, Any]], object], **update: Any) -> Callable[[Content], Files]:
    """One candidate was trained otherwise, and its result names that specification."""

    def change_all(runs: list[RunRecord]) -> None:
        run = runs[-1]
        assert run.spec is not None and run.result is not None
        fields = run.spec.model_dump(mode="json")
        change(fields)
        spec = type(run.spec).model_validate(fields)
        result = run.result.model_copy(update={"spec_hash": spec.content_hash()})
        runs[-1] = run.model_copy(update={"spec": spec, "result": result, **update})

    return change_runs(change_all)


def change_result(place: int = -1, **update: Any) -> Callable[[Content], Files]:
    def change(runs: list[RunRecord]) -> None:
        result = runs[place].result
        assert result is not None
        found = {name: value(result) if callable(value) else value for name, value in update.items()}
        runs[place] = runs[place].model_copy(update={"result": result.model_copy(update=found)})

    return change_runs(change)


def half(name: str) -> Mapping[str, Any]:
    return {name: lambda result: getattr(result, name) / 2}


def change_points(change: Callable[[Columns], Columns | None], **of_result: Any) -> Callable[[Content], Files]:
    """The series of the last run, and with it what is said of its result."""

    def tamper(content: Content) -> Files:
        run = content.runs[-1]
        assert run.result is not None
        old = content.points[run.id]
        changed = change(Columns(step=old.step.copy(), values={name: each.copy() for name, each in old.values.items()}))
        points = {id: each for id, each in content.points.items() if id != run.id}
        if changed is not None:
            points[run.id] = changed
        result = run.result.model_copy(update=of_result)
        runs = (*content.runs[:-1], run.model_copy(update={"result": result}))
        return replace(recounted(content, runs), points=points).files()

    return tamper


def set_value(name: str, row: int, value: float) -> Callable[[Columns], Columns]:
    def change(columns: Columns) -> Columns:
        columns.column(name)[row] = value
        return columns

    return change


def scale(name: str, factor: float) -> Callable[[Columns], Columns]:
    def change(columns: Columns) -> Columns:
        columns.values[name][1:] *= factor
        return columns

    return change


def without_row(row: int) -> Callable[[Columns], Columns]:
    return lambda columns: columns.rows(np.delete(np.arange(len(columns)), row))


def change_attempts(change: Callable[[list[AttemptRecord]], object]) -> Callable[[Content], Files]:
    def tamper(content: Content) -> Files:
        attempts = list(content.attempts)
        change(attempts)
        return replace(content, attempts=tuple(attempts)).files()

    return tamper


def change_attempt(**update: Any) -> Callable[[Content], Files]:
    def change(attempts: list[AttemptRecord]) -> None:
        attempts[-1] = attempts[-1].model_copy(update=update)

    return change_attempts(change)


# Answers that do not follow, signed


def change_answer(*path: str | int, to: Any) -> Callable[[Content], Files]:
    """A figure of the document; `to` may be a function of what stands there."""

    def tamper(content: Content) -> Files:
        fields = content.document.model_dump(mode="json")
        place: Any = fields
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = to(place[path[-1]]) if callable(to) else to
        return content.files(ExperimentDocument.model_validate_json(json.dumps(fields)))

    return tamper


def change_row(*path: str | int, to: Any) -> Callable[[Content], Files]:
    """Of the candidate that is no baseline."""

    def tamper(content: Content) -> Files:
        answer = content.document.comparison
        assert answer is not None
        place = next(place for place, row in enumerate(answer.rows) if not row.is_baseline)
        return change_answer("comparison", "rows", place, *path, to=to)(content)

    return tamper


def signed_files(change: Callable[[Files], object]) -> Callable[[Content], Files]:
    """Files changed one by one, and signed as they are then."""

    def tamper(content: Content) -> Files:
        files = content.files()
        for name in ("signer.pem", "statement.dsse.json"):
            del files[name]
        change(files)
        return {**files, **sign(files, content.document, KEY)}

    return tamper


def replace_in(name: str, old: bytes, new: bytes) -> Callable[[Files], None]:
    def change(files: Files) -> None:
        assert old in files[name]
        files[name] = files[name].replace(old, new, 1)

    return change


def change_table(change: Callable[[pa.Table], pa.Table]) -> Callable[[Files], None]:
    def apply(files: Files) -> None:
        sink = pa.BufferOutputStream()
        table = pyarrow.parquet.read_table(pa.BufferReader(files["points.parquet"]))
        pyarrow.parquet.write_table(change(table), sink)
        files["points.parquet"] = sink.getvalue().to_pybytes()

    return apply


def with_text(table: pa.Table, name: str, text: str) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, pa.array([text] * table.num_rows))


def set_column(name: str, values: Callable[[list[Any]], list[Any]]) -> Callable[[Files], None]:
    def change(table: pa.Table) -> pa.Table:
        place = table.column_names.index(name)
        new = pa.array(values(table[name].to_pylist()), type=table.schema.field(name).type)
        return table.set_column(place, name, new)

    return change_table(change)


# Files and signatures, without the key


def unsigned(change: Callable[[Files], object]) -> Callable[[Content], Files]:
    def tamper(content: Content) -> Files:
        files = content.files()
        change(files)
        return files

    return tamper


def change_envelope(change: Callable[[dict[str, Any]], object]) -> Callable[[Content], Files]:
    def tamper(files: Files) -> None:
        envelope = json.loads(files["statement.dsse.json"])
        change(envelope)
        files["statement.dsse.json"] = json.dumps(envelope, indent=1).encode() + b"\n"

    return unsigned(tamper)


def canonical(statement: Mapping[str, Any]) -> bytes:
    return json.dumps(statement, sort_keys=True, separators=(",", ":")).encode()


def change_statement(
    change: Callable[[dict[str, Any]], object],
    key: Ed25519PrivateKey = KEY,
    write_payload: Callable[[Mapping[str, Any]], bytes] = canonical,
) -> Callable[[Content], Files]:
    """The statement itself, signed as it is then."""

    def tamper(envelope: dict[str, Any]) -> None:
        statement = json.loads(base64.b64decode(envelope["payload"]))
        change(statement)
        payload = write_payload(statement)
        kind = envelope["payloadType"].encode()
        signed = b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)
        envelope["payload"] = base64.b64encode(payload).decode()
        envelope["signatures"][0]["sig"] = base64.b64encode(key.sign(signed)).decode()

    return change_envelope(tamper)


def lose_points(content: Content) -> Files:
    """Losses that nobody measured: half of what was, and no points to hold them against."""
    runs, points = list(content.runs), dict(content.points)
    for place, run in enumerate(runs):
        if run.candidate == "asgd" and run.result is not None and run.result.final_val_loss is not None:
            del points[run.id]
            half = run.result.final_val_loss / 2
            result = run.result.model_copy(update={"steps": 0, "tokens": 0, "final_val_loss": half})
            runs[place] = run.model_copy(update={"result": result})
    return replace(recounted(content, tuple(runs)), points=points).files()


def drop_behind_a_failure(content: Content) -> Files:
    """One candidate's run failed, and a bad seed of the other is gone."""
    runs = list(content.runs)
    failed = runs[12]
    assert failed.candidate != runs[13].candidate
    runs[12] = failed.model_copy(update={"status": RunStatus.FAILED, "result": None, "reason": "out of luck"})
    del runs[13]
    left = recounted(content, tuple(run.model_copy(update={"position": place}) for place, run in enumerate(runs)))
    attempts = tuple(
        each.model_copy(update={"outcome": AttemptOutcome.LOST}) if each.run_id == failed.id else each
        for each in left.attempts
    )
    return replace(left, attempts=attempts).files()


def drop_file(name: str, files: Files) -> None:
    del files[name]


def flip_bit(name: str) -> Callable[[Files], None]:
    def change(files: Files) -> None:
        content = bytearray(files[name])
        content[len(content) // 2] ^= 1
        files[name] = bytes(content)

    return change


def twice(value: Any) -> Any:
    return 2 * value


TABLE = (
    Tampering("the specification's hash", change_experiment(spec_hash="0" * 64), "experiment", "another hash"),
    Tampering("a path as an id", change_experiment(id="../../elsewhere"), "experiment", "is no id"),
    Tampering("the experiment's name", change_experiment(name="a better one"), "experiment", "another name"),
    Tampering("the experiment's kind", change_experiment(kind="sweep"), "experiment", "not a sweep"),
    Tampering(
        "fewer runs counted",
        change_counts(total=15, by_status={RunStatus.SUCCEEDED: 15}),
        "experiment",
        "counts 15 runs",
    ),
    Tampering("more runs counted", change_counts(total=17), "experiment", "has not ended"),
    Tampering(
        "other states counted",
        change_counts(by_status={RunStatus.SUCCEEDED: 15, RunStatus.FAILED: 1}),
        "experiment",
        "states",
    ),
    Tampering("another verdict counted", change_counts(by_verdict={Verdict.DIVERGED: 16}), "experiment", "verdicts"),
    Tampering("it may still grow", change_counts(growing=True), "experiment", "has not ended"),
    Tampering("no end", change_experiment(ended_at=None), "experiment", "no end"),
    Tampering("an end before its runs'", change_experiment(ended_at=BEGAN + 1), "experiment", "before a run"),
    Tampering(
        "a larger budget asked for", change_spec(lambda spec: spec["workload"]["budget"].update(steps=40)), "plan", ""
    ),
    Tampering("a seed less asked for", change_spec(lambda spec: spec["seeds"].pop()), "plan", "nothing asks for"),
    Tampering("no tuning asked for", change_spec(lambda spec: spec.update(tuning=None)), "plan", "planned"),
    Tampering(
        "a trial more asked for", change_spec(lambda spec: spec["tuning"].update(trials=6)), "plan", "nothing asks for"
    ),
    Tampering("another tuning seed asked for", change_spec(lambda spec: spec["tuning"].update(seeds=[8])), "plan", ""),
    Tampering(
        "another rule of tuning asked for",
        change_spec(lambda spec: spec["tuning"].update(method="grid", trials=8)),
        "plan",
        "nothing asks for",
    ),
    Tampering("another data set's seed asked for", change_spec(lambda spec: spec["seeds"].append(9)), "plan", "lacks"),
    Tampering("a bad seed of one candidate left out", drop_runs(-1), "plan", "lacks a run"),
    Tampering("a bad seed of both left out", drop_runs(-1, -4), "plan", "lacks a run"),
    Tampering("a bad seed left out behind another candidate's failure", drop_behind_a_failure, "plan", "lacks a run"),
    Tampering("a first trial of the baseline left out", drop_runs(0), "plan", "lacks a run"),
    Tampering("a later trial left out", drop_runs(6), "plan", "nothing asks for"),
    Tampering("a good run twice", repeat_run(id="k3v9m2x710-99"), "plan", "2 times"),
    Tampering("a run twice by its id", repeat_run(), "points", "do not rise"),
    Tampering("a gap in positions", change_run(position=99), "runs", "positions"),
    Tampering("runs in another order", change_runs(lambda runs: runs.reverse()), "runs", "positions"),
    Tampering("another experiment's run", change_run(experiment_id="other"), "runs", "run of other"),
    Tampering("another rate said", change_run(lr=0.5), "runs", "its specification is"),
    Tampering("another seed said", change_run(seed=9), "runs", "its specification is"),
    Tampering("another optimizer said", change_run(optimizer="adamw"), "runs", "its specification is"),
    Tampering("another model said", change_run(model="gpt2-tiny"), "runs", "its specification is"),
    Tampering("another candidate's run", change_run(candidate="sgd"), "plan", "nothing asks for"),
    Tampering(
        "another rate trained",
        change_run_spec(lambda spec: spec["optimizer"].update(lr=0.5), lr=0.5),
        "plan",
        "nothing asks for",
    ),
    Tampering(
        "another seed trained", change_run_spec(lambda spec: spec.update(seed=9), seed=9), "plan", "nothing asks"
    ),
    Tampering(
        "an option that others have not",
        change_run_spec(lambda spec: spec["optimizer"]["options"].update(beta=0.3)),
        "plan",
        "nothing asks for",
    ),
    Tampering(
        "a warm-up of its own",
        change_run_spec(lambda spec: spec["workload"].update(clip_grad_norm=0.1)),
        "plan",
        "nothing asks for",
    ),
    Tampering(
        "an easier task",
        change_run_spec(lambda spec: spec["workload"]["task"].update(noise=0.0)),
        "plan",
        "nothing asks for",
    ),
    Tampering(
        "a larger batch",
        change_run_spec(lambda spec: spec["workload"]["budget"].update(batch_sequences=2)),
        "points",
        "tokens",
    ),
    Tampering("a failed run with its result", change_run(status=RunStatus.FAILED), "runs", "do not agree"),
    Tampering("a success without result", change_run(result=None), "runs", "do not agree"),
    Tampering(
        "a bad run called failed", change_run(status=RunStatus.FAILED, result=None), "attempts", "is not the last"
    ),
    Tampering("a run that still trains", change_run(status=RunStatus.RUNNING), "experiment", "has not ended"),
    Tampering("a start before the submission", change_run(started_at=BEGAN - 9), "runs", "one after another"),
    Tampering("an end before the start", change_run(ended_at=BEGAN + 1), "runs", "one after another"),
    Tampering("a damaged run", change_run(damaged="It cannot be read."), "runs", "damaged"),
    Tampering("attempts that nobody saw", change_run(attempt=2), "attempts", "counts 2"),
    Tampering("half the device time", change_run(device_seconds=1e-3), "attempts", "not the run's"),
    Tampering("a lower loss", change_result(**half("final_val_loss")), "results", "final validation loss"),
    Tampering("a higher loss of the baseline", change_result(-6, final_val_loss=2.0), "results", "final validation"),
    Tampering("no loss", change_result(final_val_loss=None), "results", "has not fallen"),
    Tampering("a higher loss before training", change_result(initial_val_loss=9.0), "results", "first validation"),
    Tampering(
        "a higher loss before training, in points too",
        change_points(set_value("val_loss", 0, 9.0), initial_val_loss=9.0),
        "pairing",
        "began at different losses",
    ),
    Tampering("a lower training loss", change_result(**half("final_train_loss")), "results", "training loss"),
    *(
        Tampering(f"half the {name}", change_result(**half(f"{name}_median")), "results", f"median of {name}")
        for name in ("step_seconds", "data_seconds", "forward_seconds", "backward_seconds", "optimizer_seconds")
    ),
    Tampering("more tokens", change_result(tokens=twice(STEPS)), "results", "tokens"),
    Tampering("fewer steps", change_result(steps=10, tokens=10), "results", "end at step 20"),
    Tampering("more steps than the budget", change_result(steps=40, tokens=40), "results", "40 steps of 20"),
    Tampering("a competitor that diverged", change_result(-6, verdict=Verdict.DIVERGED), "results", "has fallen"),
    Tampering("a competitor without memory", change_result(-6, verdict=Verdict.OUT_OF_MEMORY), "results", "has fallen"),
    Tampering(
        "a success that did not learn",
        change_points(set_value("val_loss", -1, 99.0), final_val_loss=99.0),
        "results",
        "has not fallen",
    ),
    Tampering("another specification's result", change_result(spec_hash="1" * 64), "results", "another specification"),
    Tampering("other data", change_result(data_hash="1" * 64), "pairing", "the same data"),
    Tampering("another size of the model", change_result(parameters=1_000), "pairing", "one size"),
    Tampering("a smaller state", change_result(optimizer_state_bytes=0), "results", "smaller than it was"),
    Tampering(
        "parts of memory that are not the whole",
        change_result(memory_breakdown=lambda result: result.memory_breakdown.model_copy(update={"peak_bytes": 1})),
        "results",
        "not the whole",
    ),
    Tampering(
        "a device that there is not",
        change_result(environment=lambda result: result.environment.model_copy(update={"device": "abacus"})),
        "results",
        "abacus",
    ),
    Tampering("a result that took longer", change_result(device_seconds=1e6), "attempts", "took longer"),
    Tampering("a resumption beyond the end", change_result(resumed_from_step=21), "results", "never reached"),
    Tampering("better losses without points", lose_points, "results", "it has losses or times, and no points"),
    Tampering("no points", change_points(lambda columns: None), "results", "no points"),
    Tampering("the first point left out", change_points(without_row(0)), "results", "first validation loss"),
    Tampering("the last point left out", change_points(without_row(-1)), "results", "end at step 19"),
    Tampering("a point in between left out", change_points(without_row(7)), "results", "20 points"),
    Tampering(
        "an evaluation left out", change_points(set_value("val_loss", 10, np.nan)), "results", "not at the steps"
    ),
    Tampering("an evaluation more", change_points(set_value("val_loss", 11, 1.0)), "results", "not at the steps"),
    Tampering("steps that fall", change_points(set_value("step", 7, 3.0)), "points", "do not rise"),
    Tampering("a step twice", change_points(set_value("step", 7, 6.0)), "points", "do not rise"),
    Tampering("a point beyond the budget", change_points(set_value("step", -1, 21.0)), "points", "beyond its 20"),
    Tampering("tokens of a point", change_points(set_value("tokens", 7, 700.0)), "points", "tokens"),
    Tampering("a step in less than no time", change_points(set_value("step_seconds", 7, -1.0)), "points", "no time"),
    Tampering("lower training losses", change_points(scale("train_loss", 0.5)), "results", "training loss"),
    Tampering("quicker steps", change_points(scale("step_seconds", 0.5)), "results", "median of step_seconds"),
    Tampering("an attempt left out", change_attempts(lambda attempts: attempts.pop()), "attempts", "counts 1"),
    Tampering(
        "an attempt more",
        change_attempts(lambda attempts: attempts.append(attempts[-1].model_copy(update={"attempt": 2}))),
        "attempts",
        "counts 1",
    ),
    Tampering("a stranger's attempt", change_attempt(run_id="nobody"), "attempts", "no run nobody"),
    Tampering("another number of an attempt", change_attempt(attempt=2), "attempts", "counts 1"),
    Tampering("another time of an attempt", change_attempt(device_seconds=1e-3), "attempts", "not the run's"),
    Tampering("a lost attempt", change_attempt(outcome=AttemptOutcome.LOST), "attempts", "is not the last"),
    Tampering("an attempt without end", change_attempt(ended_at=None), "attempts", "has not ended"),
    Tampering("a conclusion", change_row("conclusion", to="better"), "figures", "conclusion"),
    Tampering("a difference", change_row("difference", "mean", to=-1.0), "figures", "difference.mean"),
    Tampering("an interval", change_row("difference", "high", to=-0.1), "figures", "difference.high"),
    Tampering("a p-value", change_row("difference", "p_value", to=0.001), "figures", "difference.p_value"),
    Tampering("a mean loss", change_row("val_loss", "mean", to=0.5), "figures", "val_loss.mean"),
    Tampering("a best rate", change_row("best_lr", to=0.5), "figures", "best_lr"),
    Tampering("bytes of state", change_row("optimizer_state_bytes", to=1), "figures", "optimizer_state_bytes"),
    Tampering("device-hours", change_row("device_hours", to=1e-9), "figures", "device_hours"),
    Tampering("the Pareto front", change_row("on_pareto_front", to=lambda found: not found), "figures", "pareto"),
    Tampering("the rate of a trial", change_row("learning_rates", 0, "lr", to=0.011), "figures", "learning_rates.0.lr"),
    Tampering("the order", change_answer("comparison", "rows", to=lambda rows: rows[::-1]), "figures", "rows"),
    Tampering("a candidate less", change_answer("comparison", "rows", to=lambda rows: rows[:1]), "figures", "rows"),
    Tampering("the baseline", change_answer("comparison", "baseline", to="asgd"), "figures", "baseline"),
    Tampering("the tuning seeds", change_answer("comparison", "tuning_seeds", to=[]), "figures", "tuning_seeds"),
    Tampering("the unit of losses", change_answer("comparison", "loss_unit", to=" nats"), "figures", "loss_unit"),
    Tampering("the machines", change_answer("provenance", "environments", 0, "torch", to="9.9"), "figures", "torch"),
    Tampering("the code", change_answer("provenance", "commits", to=["0" * 40]), "figures", "commits"),
    Tampering("the data", change_answer("provenance", "data_hashes", to=["0" * 64]), "figures", "data_hashes"),
    Tampering("the device time", change_answer("provenance", "device_seconds", to=1.0), "figures", "device_seconds"),
    Tampering("the number of results", change_answer("provenance", "results", to=99), "figures", "results"),
    Tampering("the submission's time", change_answer("provenance", "submitted_at", to=1.0), "figures", "submitted_at"),
    Tampering(
        "a field that is not read", signed_files(replace_in("document.json", b"{", b'{"more": 1,')), "schema", ""
    ),
    Tampering(
        "a field twice", signed_files(replace_in("document.json", b'"name"', b'"name": "x", "name"')), "schema", ""
    ),
    Tampering("other spaces", signed_files(replace_in("attempts.json", b": ", b":  ")), "schema", "not written as"),
    Tampering("no JSON", signed_files(replace_in("document.json", b"{", b"[")), "schema", "ExperimentDocument"),
    Tampering(
        "a loss that is no number", signed_files(replace_in("document.json", b'"lr": 0.01', b'"lr": NaN')), "schema", ""
    ),
    Tampering(
        "no Parquet", signed_files(lambda files: files.update({"points.parquet": b"PAR1"})), "schema", "no Parquet"
    ),
    Tampering(
        "a column less",
        signed_files(change_table(lambda table: table.drop_columns(["lr"]))),
        "schema",
        "has the columns",
    ),
    Tampering(
        "a column of texts",
        signed_files(change_table(lambda table: table.set_column(7, "train_loss", table["candidate"]))),
        "schema",
        "train_loss is string",
    ),
    Tampering(
        "points that are no number",
        signed_files(set_column("val_loss", lambda values: [float("nan"), *values[1:]])),
        "schema",
        "no finite number",
    ),
    Tampering(
        "points of nobody",
        signed_files(set_column("run_id", lambda ids: ["nobody", *ids[1:]])),
        "points",
        "no such run",
    ),
    Tampering(
        "points of another candidate",
        signed_files(set_column("candidate", lambda names: ["asgd"] * len(names))),
        "points",
        "name it otherwise",
    ),
    Tampering(
        "points of two seeds", signed_files(set_column("seed", lambda seeds: [9, *seeds[1:]])), "points", "not name one"
    ),
    Tampering(
        "points in disorder",
        signed_files(change_table(lambda table: pa.concat_tables([table.slice(3), table.slice(0, 3)]))),
        "schema",
        "do not stand together",
    ),
    *(
        Tampering(f"a bit of {name}", unsigned(flip_bit(name)), "digest", f"{name} is not the file")
        for name in ("document.json", "attempts.json", "points.parquet")
    ),
    Tampering("a bit of the key", unsigned(flip_bit("signer.pem")), "signature", ""),
    *(
        Tampering(f"no {name}", unsigned(partial(drop_file, name)), "files", f"{name} is missing")
        for name in ("document.json", "attempts.json", "points.parquet", "signer.pem", "statement.dsse.json")
    ),
    Tampering(
        "a table more", unsigned(lambda files: files.update({"comparison.md": b"|"})), "statement", "not the files"
    ),
    Tampering("a file more", unsigned(lambda files: files.update({"run.sh": b"rm"})), "files", "belongs to no bundle"),
    Tampering("a huge key", unsigned(lambda files: files.update({"signer.pem": b"x" * 5000})), "files", "larger"),
    Tampering("no key", unsigned(lambda files: files.update({"signer.pem": b"x"})), "signer", "no public key"),
    Tampering(
        "the statement cut", unsigned(lambda files: files.update({"statement.dsse.json": b"{"})), "statement", "no JSON"
    ),
    Tampering(
        "no envelope", unsigned(lambda files: files.update({"statement.dsse.json": b"[]"})), "statement", "no DSSE"
    ),
    Tampering(
        "brackets without end",
        unsigned(lambda files: files.update({"statement.dsse.json": b"[" * 100_000})),
        "statement",
        "no JSON",
    ),
    Tampering("another payload", change_envelope(lambda each: each.update(payload="e30=")), "signature", "not signed"),
    Tampering("no base64", change_envelope(lambda each: each.update(payload="*")), "statement", "encoded"),
    Tampering(
        "another type", change_envelope(lambda each: each.update(payloadType="text")), "statement", "the payload is"
    ),
    Tampering("no signature", change_envelope(lambda each: each.update(signatures=[])), "statement", "one signature"),
    Tampering(
        "two signatures",
        change_envelope(lambda each: each.update(signatures=each["signatures"] * 2)),
        "statement",
        "one",
    ),
    Tampering(
        "a field beside", change_envelope(lambda each: each.update(more=1)), "statement", "more than its payload"
    ),
    Tampering(
        "another name of the key",
        change_envelope(lambda each: each["signatures"][0].update(keyid="0" * 64)),
        "signature",
        "names the key",
    ),
    Tampering(
        "another's signature", change_statement(lambda said: None, STRANGER), "signature", "not signed by this key"
    ),
    Tampering("another's bundle", lambda content: content.files(key=STRANGER), "signer", "none of the keys"),
    Tampering("no statement", change_statement(lambda said: said.pop("subject")), "statement", "no in-toto statement"),
    Tampering(
        "another statement", change_statement(lambda said: said.update(_type="x")), "statement", "no statement of"
    ),
    Tampering(
        "a later schema", change_statement(lambda said: said.update(predicateType="x")), "statement", "another schema"
    ),
    Tampering(
        "a schema that is no number",
        change_statement(lambda said: said["predicate"].update(schema_version=True)),
        "statement",
        "another schema",
    ),
    Tampering(
        "a name twice in the statement",
        change_statement(
            lambda said: None,
            write_payload=lambda said: canonical(said).replace(b"{", b'{"predicate":{"name":"x"},', 1),
        ),
        "statement",
        "holds more",
    ),
    Tampering(
        "a text of megabytes in every row",
        signed_files(change_table(lambda table: with_text(table, "candidate", "a" * 2_000))),
        "schema",
        "a text that no run has",
    ),
    Tampering(
        "fewer files signed", change_statement(lambda said: said["subject"].pop()), "statement", "not the files here"
    ),
    Tampering(
        "another digest",
        change_statement(lambda said: said["subject"][0]["digest"].update(sha256="0" * 64)),
        "digest",
        "not the file that was signed",
    ),
    Tampering(
        "another experiment said",
        change_statement(lambda said: said["predicate"].update(spec_hash="0" * 64)),
        "statement",
        "something else",
    ),
)


@pytest.fixture(scope="module")
def content() -> Content:
    return trained_content()


def write(folder: Path, files: Files) -> Path:
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_bytes(text)
    return folder


def test_what_was_trained_is_believed(content: Content, tmp_path: Path) -> None:
    found = verify(write(tmp_path / "bundle", content.files()), [fingerprint(KEY.public_key())])
    assert found.is_trusted
    assert found.bundle.experiment == content.experiment
    assert not verify(tmp_path / "bundle").is_trusted


def test_no_sentence_is_stored_and_who_verifies_reads_todays(content: Content, tmp_path: Path) -> None:
    answer = content.document.comparison
    assert answer is not None and answer.notes and all(row.verdict for row in answer.rows)
    assert verify(write(tmp_path / "bundle", content.files())).bundle.document == content.document
    stored = json.loads(content.files()["document.json"])["comparison"]
    assert stored["notes"] == [] and {row["verdict"] for row in stored["rows"]} == {""}
    worded = change_row("verdict", to="Better by a lot.")(content)["document.json"]
    assert worded == content.files()["document.json"]


def earlier(content: Content, change: Callable[[dict[str, Any]], object] = lambda fields: None) -> Files:
    """The bundle as an earlier procedure wrote it: grids that were extended, other figures, sentences, tables."""
    files = {name: text for name, text in content.files().items() if name not in ("signer.pem", "statement.dsse.json")}
    fields = json.loads(files["document.json"])
    spec = fields["experiment"]["spec"]
    spec |= {"tuning": {"seeds": [7], "extend_grid": 2}, "unequal_grids": False}
    for candidate in spec["candidates"]:
        candidate["learning_rates"] = [0.01, 0.02, 0.04]
    del fields["experiment"]["spec_hash"]
    fields["comparison"] = {"rows": [{"candidate": "asgd", "regret": 0.1, "verdict": "No difference shown."}]}
    for run in fields["runs"]:
        del run["result"]["lowest_val_loss"]
    change(fields)
    spec_hash = fields["experiment"].setdefault("spec_hash", hashlib.sha256(canonical(spec)).hexdigest())
    fields["provenance"]["spec_hash"] = spec_hash
    files |= {"document.json": json.dumps(fields, indent=1).encode() + b"\n", "comparison.md": b"| SGD |"}
    said = content.document.provenance.model_copy(update={"spec_hash": spec_hash})
    signed = {**files, **sign(files, content.document.model_copy(update={"provenance": said}), KEY)}

    def as_earlier(statement: dict[str, Any]) -> None:
        statement["predicateType"] = "urn:adapm-bench:bundle:1"
        statement["predicate"]["schema_version"] = 1

    return change_statement(as_earlier)(cast(Content, SimpleNamespace(files=lambda: signed)))


def test_a_bundle_of_an_earlier_procedure_is_believed_and_answered_anew(content: Content, tmp_path: Path) -> None:
    found = verify(write(tmp_path / "bundle", earlier(content)))
    assert [text for name, text in found.lines if "earlier procedure" in text and name in ("tuning", "figures")]
    assert found.bundle.is_earlier
    answer, today = found.bundle.document.comparison, content.document.comparison
    assert answer is not None and today is not None
    assert [row.val_loss for row in answer.rows] == [row.val_loss for row in today.rows]
    assert all(row.verdict for row in answer.rows)


EARLIER = (
    ("experiment", "another hash", lambda fields: fields["experiment"].update(spec_hash="0" * 64)),
    ("experiment", "tuning seeds judge", lambda fields: fields["experiment"]["spec"]["tuning"].update(seeds=[1])),
    ("results", "final validation", lambda fields: fields["runs"][-1]["result"].update(final_val_loss=0.1)),
    ("schema", "something in it is not read", lambda fields: fields["runs"][-1].update(lr="0.08027")),
    ("schema", "", lambda fields: fields["runs"][-1].update(more=1)),
    ("schema", "no JSON", lambda fields: fields["runs"][-1].update(lr=float("nan"))),
    ("figures", "device_seconds", lambda fields: fields["provenance"].update(device_seconds=1.0)),
)


@pytest.mark.parametrize(("check", "reason", "change"), EARLIER, ids=[f"{each[0]}: {each[1]}" for each in EARLIER])
def test_tampering_with_a_bundle_of_an_earlier_procedure_is_refused(
    content: Content, tmp_path: Path, check: str, reason: str, change: Callable[[dict[str, Any]], object]
) -> None:
    with pytest.raises(BundleError) as refused:
        verify(write(tmp_path / "bundle", earlier(content, change)))
    assert (refused.value.check, reason in refused.value.reason) == (check, True), refused.value


def test_a_bundle_from_before_points_told_of_use_is_believed(content: Content, tmp_path: Path) -> None:
    """Its points have fewer columns, all those that any check is about."""
    older = change_table(lambda table: table.drop_columns(sorted(LATER_FIELDS)))
    found = verify(write(tmp_path / "bundle", signed_files(older)(content)))
    assert all(np.isnan(points.values["cpu_cores"]).all() for points in found.bundle.points.values())


def test_the_table_has_a_hundred_kinds() -> None:
    names = [each.what for each in TABLE]
    assert len(set(names)) == len(names) >= 100


@pytest.mark.parametrize("kind", TABLE, ids=lambda kind: kind.what)
def test_tampering_is_refused_with_its_reason(content: Content, tmp_path: Path, kind: Tampering) -> None:
    folder = write(tmp_path / "bundle", kind.tamper(content))
    with pytest.raises(BundleError) as refused:
        verify(folder, [fingerprint(KEY.public_key())])
    assert refused.value.check == kind.check, refused.value
    assert kind.reason in refused.value.reason


def test_what_is_no_plain_file_is_refused(content: Content, tmp_path: Path) -> None:
    folder = write(tmp_path / "bundle", content.files())
    (tmp_path / "elsewhere").write_bytes((folder / "attempts.json").read_bytes())
    (folder / "attempts.json").unlink()
    (folder / "attempts.json").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BundleError, match=r"files: attempts\.json is no plain file"):
        verify(folder)
    with pytest.raises(BundleError, match="cannot be read"):
        verify(tmp_path / "nowhere")
