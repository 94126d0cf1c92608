"""Tampering that a stranger thought of: how files are encoded, what stands beside them, clocks, and seeds of seeds.

The forger holds the publisher's key where nothing else is said: after the change all that follows is derived again.
"""

import base64
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from api.bundles.board import write_board
from api.bundles.layout import BundleError
from api.bundles.publication import write_bundle
from api.bundles.signing import fingerprint, sign
from api.bundles.verification import verify
from orchestrator.columns import Columns
from orchestrator.records import AttemptRecord, RunRecord
from tests.factories.bundles import BEGAN, KEY, Content, grown_content, renamed, trained_content
from tests.unit.api.bundles.test_tampering import (
    Files,
    Tampering,
    change_answer,
    change_attempts,
    change_envelope,
    change_experiment,
    change_run,
    change_runs,
    change_statement,
    change_table,
    recounted,
    replace_in,
    set_column,
    signed_files,
    unsigned,
    write,
)

ORDER = 2**252 + 27742317777372353535851937790883648493
"""Of Ed25519's group: a signature with it added to its second half is one that careless code takes as well."""


def with_key(pem: bytes) -> Callable[[Content], Files]:
    """The key's file as that, in a statement that names it."""

    def tamper(content: Content) -> Files:
        files = content.files()
        files["signer.pem"] = pem.replace(b"KEY", files["signer.pem"]) if pem.startswith(b"words") else pem
        rest = {name: text for name, text in files.items() if name not in ("signer.pem", "statement.dsse.json")}
        signed = sign(rest, content.document, KEY)
        envelope = json.loads(signed["statement.dsse.json"])
        statement = json.loads(base64.b64decode(envelope["payload"]))
        import hashlib

        for each in statement["subject"]:
            if each["name"] == "signer.pem":
                each["digest"]["sha256"] = hashlib.sha256(files["signer.pem"]).hexdigest()
        payload = json.dumps(statement, sort_keys=True, separators=(",", ":")).encode()
        kind = envelope["payloadType"].encode()
        envelope["payload"] = base64.b64encode(payload).decode()
        sig = KEY.sign(b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload))
        envelope["signatures"][0]["sig"] = base64.b64encode(sig).decode()
        return {**files, "statement.dsse.json": json.dumps(envelope, indent=1).encode() + b"\n"}

    return tamper


def another_signature(envelope: dict[str, Any]) -> None:
    """The same signature by arithmetic: S + L."""
    found = base64.b64decode(envelope["signatures"][0]["sig"])
    larger = int.from_bytes(found[32:], "little") + ORDER
    envelope["signatures"][0]["sig"] = base64.b64encode(found[:32] + larger.to_bytes(32, "little")).decode()


def spare_bits(envelope: dict[str, Any]) -> None:
    """Base64 of 64 bytes ends in `w==`: four bits that a decoder drops."""
    sig = envelope["signatures"][0]["sig"]
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    envelope["signatures"][0]["sig"] = sig[:-3] + alphabet[alphabet.index(sig[-3]) | 1] + "=="


def envelope_text(old: bytes, new: bytes) -> Callable[[Content], Files]:
    return unsigned(replace_in("statement.dsse.json", old, new))


def add(name: str, old: bytes, new: bytes) -> Callable[[Content], Files]:
    return signed_files(replace_in(name, old, new))


def append(name: str, text: bytes) -> Callable[[Content], Files]:
    return signed_files(lambda files: files.update({name: files[name] + text}))


def prepend(name: str, text: bytes) -> Callable[[Content], Files]:
    return signed_files(lambda files: files.update({name: text + files[name]}))


def encoded(name: str, encoding: str) -> Callable[[Content], Files]:
    return signed_files(lambda files: files.update({name: files[name].decode().encode(encoding)}))


def cast(name: str, to: pa.DataType) -> Callable[[Content], Files]:
    def change(table: pa.Table) -> pa.Table:
        return table.set_column(table.column_names.index(name), name, table[name].cast(to))

    return signed_files(change_table(change))


def table(change: Callable[[pa.Table], pa.Table]) -> Callable[[Content], Files]:
    return signed_files(change_table(change))


def replay_seed(content: Content, *, candidates: tuple[str, ...], quicker: float = 1.0) -> Content:
    """Seed 1's training counts as seed 2's as well, of those candidates."""
    runs, points = list(content.runs), dict(content.points)
    for candidate in candidates:
        good, bad = (
            next(run for run in runs if run.candidate == candidate and run.seed == seed and run.result is not None)
            for seed in (1, 2)
        )
        assert good.result is not None and bad.spec is not None
        columns = content.points[good.id]
        seconds = columns.values["step_seconds"] * quicker
        points[bad.id] = Columns(step=columns.step, values={**columns.values, "step_seconds": seconds})
        update = {"spec_hash": bad.spec.content_hash(), "step_seconds_median": float(np.median(seconds[1:]))}
        result = good.result.model_copy(update=update)
        seconds_of_run = result.device_seconds + 0.5
        runs[bad.position] = bad.model_copy(update={"result": result, "device_seconds": seconds_of_run})
    attempts = tuple(
        each.model_copy(update={"device_seconds": next(run.device_seconds for run in runs if run.id == each.run_id)})
        for each in content.attempts
    )
    return replace(recounted(content, tuple(runs)), points=points, attempts=attempts)


def swap_seeds(content: Content) -> Files:
    """One candidate's two seeds exchange their trainings, so that pairs are others."""
    runs, points = list(content.runs), dict(content.points)
    one, two = (run for run in content.runs if run.candidate == "asgd" and run.seed in (1, 2))
    for to, of in ((one, two), (two, one)):
        assert of.result is not None and to.spec is not None
        result = of.result.model_copy(update={"spec_hash": to.spec.content_hash()})
        runs[to.position] = to.model_copy(update={"result": result, "device_seconds": of.device_seconds})
        points[to.id] = content.points[of.id]
    seconds = {run.id: run.device_seconds for run in runs}
    attempts = tuple(each.model_copy(update={"device_seconds": seconds[each.run_id]}) for each in content.attempts)
    return replace(recounted(content, tuple(runs)), points=points, attempts=attempts).files()


def earlier_attempt(attempts: list[AttemptRecord]) -> None:
    attempts[-1] = attempts[-1].model_copy(update={"leased_at": BEGAN - 3600, "started_at": BEGAN - 3600})


def twice_the_same(attempts: list[AttemptRecord]) -> None:
    attempts.append(attempts[-1])


def rename_runs(content: Content) -> Files:
    def change(runs: list[RunRecord]) -> None:
        runs[0] = runs[0].model_copy(update={"id": "../../etc"})

    return change_runs(change)(content)


PEM_OF_ANOTHER_KIND = (
    ec.derive_private_key(7, ec.SECP256R1()).public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
)
COMPLEX = pa.list_(pa.float64())
TABLE = (
    Tampering("words before the key", with_key(b"words before it\nKEY"), "signer", "more than the key"),
    Tampering("a key of another kind", with_key(PEM_OF_ANOTHER_KIND), "signer", "no Ed25519 key"),
    Tampering("S + L as the signature", change_envelope(another_signature), "signature", "not signed by this key"),
    Tampering("spare bits of base64", change_envelope(spare_bits), "statement", "holds more"),
    Tampering(
        "a line feed in base64",
        change_envelope(lambda each: each.update(payload=each["payload"][:76] + "\n" + each["payload"][76:])),
        "statement",
        "encoded",
    ),
    Tampering(
        "the payload twice", envelope_text(b'"payload":', b'"payload": "e30=",\n "payload":'), "statement", "holds more"
    ),
    Tampering("an envelope with a mark of order", envelope_text(b"{", b"\xef\xbb\xbf{"), "statement", ""),
    Tampering(
        "the key's name in capitals",
        change_envelope(lambda each: each["signatures"][0].update(keyid=each["signatures"][0]["keyid"].upper())),
        "signature",
        "names the key",
    ),
    Tampering(
        "a path before a signed name",
        change_statement(lambda said: said["subject"][1].update(name="./" + said["subject"][1]["name"])),
        "statement",
        "not the files here",
    ),
    Tampering(
        "a weaker digest beside",
        change_statement(lambda said: said["subject"][0]["digest"].update(sha1="0" * 40)),
        "digest",
        "not the file that was signed",
    ),
    Tampering(
        "a file twice in the statement",
        change_statement(lambda said: said["subject"].append(said["subject"][0])),
        "statement",
        "not the files here",
    ),
    Tampering("a mark of order", prepend("document.json", b"\xef\xbb\xbf"), "schema", "ExperimentDocument"),
    Tampering("another encoding", encoded("document.json", "utf-16"), "schema", "ExperimentDocument"),
    Tampering("an escape", add("document.json", b'"momentum', b'"\\u006domentum'), "schema", "not written as"),
    Tampering("a blank behind the end", append("document.json", b" "), "schema", "not written as"),
    Tampering(
        "an attempt's field twice", add("attempts.json", b'"attempt":', b'"attempt": 9, "attempt":'), "schema", ""
    ),
    Tampering("a number beyond all floats", add("document.json", b'"lr": 0.01', b'"lr": 1e400'), "schema", ""),
    Tampering(
        "a whole number of 400 digits", add("document.json", b'"seed": 1', b'"seed": 1' + b"0" * 400), "points", ""
    ),
    Tampering(
        "a whole number of 5,000 digits", add("document.json", b'"seed": 1', b'"seed": 1' + b"0" * 5000), "schema", ""
    ),
    Tampering("infinity", add("document.json", b'"lr": 0.01', b'"lr": Infinity'), "schema", ""),
    Tampering("a number as text", add("document.json", b'"lr": 0.01', b'"lr": "0.01"'), "schema", ""),
    Tampering("no character", add("document.json", b'"momentum', b'"\xffmomentum'), "schema", "ExperimentDocument"),
    Tampering("half a pair of surrogates", add("document.json", b'"momentum', b'"\\ud800momentum'), "schema", ""),
    Tampering("a letter that looks alike", change_run(candidate="\u0430sgd"), "runs", "no candidate"),
    Tampering("a letter that nobody sees", change_run(candidate="asgd\u200b"), "runs", "no candidate"),
    Tampering("a path as a run's id", rename_runs, "runs", "is no id"),
    Tampering("losses of half the digits", cast("val_loss", pa.float32()), "schema", "val_loss is float"),
    Tampering("texts of another type", cast("candidate", pa.large_string()), "schema", "candidate is large_string"),
    Tampering(
        "columns in another order", table(lambda found: found.select(found.column_names[::-1])), "schema", "columns"
    ),
    Tampering(
        "a column more",
        table(lambda found: found.append_column("more", pa.array([1] * found.num_rows))),
        "schema",
        "columns",
    ),
    Tampering(
        "a column twice",
        table(lambda found: found.append_column("lr", found["lr"])),
        "schema",
        "columns",
    ),
    Tampering(
        "lists as losses",
        table(
            lambda found: found.set_column(
                found.column_names.index("val_loss"), "val_loss", pa.array([[1.0]] * found.num_rows, type=COMPLEX)
            )
        ),
        "schema",
        "val_loss is list",
    ),
    Tampering(
        "words in the table's metadata",
        table(lambda found: found.replace_schema_metadata({"licence": "mine"})),
        "schema",
        "more than its columns",
    ),
    Tampering("no rows", table(lambda found: found.slice(0, 0)), "results", "no points"),
    Tampering(
        "a run without a name", signed_files(set_column("run_id", lambda ids: [None, *ids[1:]])), "schema", "no run_id"
    ),
    Tampering(
        "a step beyond all whole numbers of floats",
        signed_files(set_column("step", lambda steps: [*steps[:-1], 2**62])),
        "points",
        "beyond its 20",
    ),
    Tampering(
        "a Parquet file cut",
        signed_files(lambda files: files.update({"points.parquet": files["points.parquet"][:-9]})),
        "schema",
        "no Parquet",
    ),
    Tampering(
        "rules of its own",
        unsigned(lambda files: files.update({"rules.yaml": b"name: mine"})),
        "files",
        "belongs to no bundle",
    ),
    Tampering(
        "a name in capitals",
        unsigned(lambda files: files.update({"Document.json": files["document.json"]})),
        "files",
        "belongs to no bundle",
    ),
    Tampering(
        "published before it ended",
        change_answer("provenance", "written_at", to=BEGAN + 1),
        "experiment",
        "published before it ended",
    ),
    Tampering("published in no year", change_answer("provenance", "written_at", to=1e300), "experiment", "at a time"),
    Tampering("submitted before all clocks", change_experiment(created_at=-1e300), "experiment", "at a time"),
    Tampering("an attempt before its experiment", change_attempts(earlier_attempt), "attempts", "one after another"),
    Tampering("two attempts of one number", change_attempts(twice_the_same), "attempts", "counts 1"),
    Tampering("two seeds exchanged", swap_seeds, "pairing", "began at different losses"),
    Tampering(
        "a good seed twice, of one candidate",
        lambda content: replay_seed(content, candidates=("asgd",)).files(),
        "pairing",
        "began at",
    ),
    Tampering(
        "a good seed twice, of both",
        lambda content: replay_seed(content, candidates=("sgd", "asgd")).files(),
        "trainings",
        "are one training",
    ),
    Tampering(
        "a good seed twice, of both, with other times",
        lambda content: replay_seed(content, candidates=("sgd", "asgd"), quicker=0.875).files(),
        "trainings",
        "are one training",
    ),
)


@pytest.fixture(scope="module")
def content() -> Content:
    return trained_content()


@pytest.mark.parametrize("kind", TABLE, ids=lambda kind: kind.what)
def test_it_is_refused_with_its_reason(content: Content, tmp_path: Path, kind: Tampering) -> None:
    folder = write(tmp_path / "bundle", kind.tamper(content))
    with pytest.raises(BundleError) as refused:
        verify(folder, [fingerprint(KEY.public_key())])
    assert refused.value.check == kind.check, refused.value
    assert kind.reason in refused.value.reason


def test_a_comparison_whose_looks_added_seeds_is_believed_and_its_last_seed_is_not_left_out(tmp_path: Path) -> None:
    grown = grown_content()
    last = max(run.seed for run in grown.runs)
    assert 3 < last < 8
    verify(write(tmp_path / "whole", grown.files()))
    left = [run for run in grown.runs if run.seed != last]
    runs = tuple(run.model_copy(update={"position": place}) for place, run in enumerate(left))
    with pytest.raises(BundleError, match="lacks a run that its tuning or a look asks for"):
        verify(write(tmp_path / "cut", recounted(grown, runs).files()))


def test_seeds_that_no_look_asked_for_are_refused(tmp_path: Path) -> None:
    """Whoever goes on after a verdict until it is another one."""
    last = max(run.seed for run in grown_content().runs)
    with pytest.raises(BundleError, match="faster has a run that nothing asks for"):
        verify(write(tmp_path / "more", grown_content(beyond=1).files()))
    grown = grown_content(beyond=1)
    alone = [run for run in grown.runs if run.candidate == "sgd" or run.seed <= last]
    runs = tuple(run.model_copy(update={"position": place}) for place, run in enumerate(alone))
    with pytest.raises(BundleError, match="sgd has a run that nothing asks for"):
        verify(write(tmp_path / "baseline", recounted(grown, runs).files()))


def test_what_never_ends_is_not_read(content: Content, tmp_path: Path) -> None:
    """A pipe instead of a file, a folder instead of one, a link in a circle."""
    kinds: list[Callable[[Path], object]] = [os.mkfifo, Path.mkdir, lambda path: path.symlink_to(path)]
    for number, make in enumerate(kinds):
        folder = write(tmp_path / str(number), content.files())
        (folder / "attempts.json").unlink()
        make(folder / "attempts.json")
        with pytest.raises(BundleError, match=r"attempts\.json is no plain file"):
            verify(folder)


def test_a_small_file_that_claims_many_rows_is_not_unpacked(
    content: Content, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.bundles.layout.MOST_POINTS", 100)
    with pytest.raises(BundleError, match="more than 100 rows"):
        verify(write(tmp_path / "bundle", content.files()))


def test_a_name_of_markup_stays_text_on_the_board(content: Content, tmp_path: Path) -> None:
    """And a label that is another optimizer's name stands beside what was trained."""
    fields = content.experiment.spec.model_dump(mode="json")
    fields["name"] = "<img src=x onerror=alert(1)>"
    spec = type(content.experiment.spec).model_validate(fields)
    update = {"spec": spec, "spec_hash": spec.content_hash(), "name": spec.name}
    changed = replace(content, experiment=content.experiment.model_copy(update=update))
    write_bundle(tmp_path / "one", changed.document, changed.attempts, changed.files()["points.parquet"], KEY)
    changed = renamed(grown_content(), "a1b2c3d4e5")
    write_bundle(tmp_path / "two", changed.document, changed.attempts, changed.files()["points.parquet"], KEY)
    write_board([tmp_path], tmp_path / "site", rules=())
    text = "".join(page.read_text() for page in (tmp_path / "site").iterdir())
    assert "<img src=x" not in text and "&lt;img src=x" in text
    assert "<bdi>faster</bdi> <code>sgd</code>" in text


def test_the_table_has_more_than_twenty_fresh_kinds() -> None:
    assert len({each.what for each in TABLE}) == len(TABLE) >= 40
