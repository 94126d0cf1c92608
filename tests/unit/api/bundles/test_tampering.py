"""A bundle that was tampered with is refused: by its files, its signature, or a figure that does not follow."""

import base64
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from api.bundles.layout import MOST_POINTS, BundleError
from api.bundles.signing import fingerprint, sign
from api.bundles.verification import verify
from tests.factories.bundles import KEY, STEPS, Content, trained_content

Files = dict[str, bytes]
Change = Callable[[Files], object]
STRANGER = Ed25519PrivateKey.from_private_bytes(bytes(range(1, 33)))


def change_json(name: str, change: Callable[[Any], object]) -> Change:
    def apply(files: Files) -> None:
        fields = json.loads(files[name])
        change(fields)
        files[name] = json.dumps(fields, indent=1).encode()

    return apply


def change_payload(change: Callable[[Any], object]) -> Change:
    """The statement, signed as it is then."""

    def apply(files: Files) -> None:
        envelope = json.loads(files["statement.dsse.json"])
        statement = json.loads(base64.b64decode(envelope["payload"]))
        change(statement)
        payload, kind = json.dumps(statement).encode(), envelope["payloadType"].encode()
        signature = KEY.sign(b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload))
        envelope["payload"] = base64.b64encode(payload).decode()
        envelope["signatures"][0]["sig"] = base64.b64encode(signature).decode()
        files["statement.dsse.json"] = json.dumps(envelope).encode()

    return apply


def put(name: str, text: bytes) -> Change:
    return lambda files: files.update({name: text})


def parquet(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pyarrow.parquet.write_table(table, sink)
    return bytes(sink.getvalue())


def lower_curves(files: Files) -> None:
    """Lower losses on the way, which no result repeats."""
    table = pyarrow.parquet.read_table(pa.BufferReader(files["points.parquet"]))
    rows = zip(table["step"].to_pylist(), table["val_loss"].to_pylist(), strict=True)
    losses = [loss / 100 if loss is not None and step < STEPS else loss for step, loss in rows]
    index = table.column_names.index("val_loss")
    files["points.parquet"] = parquet(table.set_column(index, "val_loss", pa.array(losses, pa.float64())))


def lower_last_loss(document: Any) -> None:
    document["runs"][-1]["result"]["final_val_loss"] -= 1e-4


def more_steps(document: Any) -> None:
    document["experiment"]["spec"]["workload"]["budget"]["steps"] += 1


def other_signature(envelope: Any) -> None:
    envelope["signatures"][0]["sig"] = base64.b64encode(STRANGER.sign(b"another text")).decode()


def set_mean(document: Any) -> None:
    document["comparison"]["rows"][1]["difference"]["mean"] = -9.0


SIGNED: tuple[tuple[str, Change, str, str], ...] = (
    (
        "a figure",
        change_json("document.json", set_mean),
        "figures",
        r"^1 of \d+ .*: comparison\.rows\.1\.difference\.mean is -9\.0 stored, 0\.\d+ recomputed$",
    ),
    (
        "a verdict",
        change_json("document.json", lambda document: document["comparison"]["rows"][1].update(conclusion="better")),
        "figures",
        'conclusion is "better" stored, "undecided" recomputed',
    ),
    (
        "the code that trained",
        change_json("document.json", lambda document: document["provenance"].update(device_seconds=1.0)),
        "figures",
        r"provenance\.device_seconds is 1\.0 stored",
    ),
    (
        "no answer",
        change_json("document.json", lambda document: document.pop("comparison")),
        "figures",
        "is null stored",
    ),
    ("a result", change_json("document.json", lower_last_loss), "figures", r"comparison\.rows\.1\.val_loss\.mean"),
    (
        "a run less",
        change_json("document.json", lambda document: document["runs"].pop()),
        "figures",
        "provenance.runs is 16 stored, 15 recomputed",
    ),
    ("the points", lower_curves, "figures", "time_to_target"),
    ("the specification", change_json("document.json", more_steps), "specification", "another hash"),
    ("no UTF-8", put("document.json", b'{"experiment": "\xff"}'), "schema", "not JSON"),
    ("a number that is none", put("document.json", b'{"experiment": NaN}'), "schema", "not JSON"),
    ("brackets without end", put("document.json", b"[" * 100_000), "schema", "not JSON"),
    ("no Parquet", put("points.parquet", b"PAR1"), "schema", "no Parquet"),
    ("other columns", put("points.parquet", parquet(pa.table({"step": [1]}))), "schema", "no Parquet file of points"),
    (
        "a small file of many rows",
        put("points.parquet", parquet(pa.table({"run_id": pa.nulls(MOST_POINTS + 1, pa.string())}))),
        "schema",
        "larger, unpacked",
    ),
)
"""(what is changed, how, the check that refuses it, why): the forger holds the publisher's key and signs again."""
UNSIGNED: tuple[tuple[str, Change, str, str], ...] = (
    ("a file", put("document.json", b"[]"), "digest", r"document\.json is not as it was signed"),
    ("a file less", lambda files: files.pop("document.json"), "files", r"document\.json is missing"),
    ("a file more", put("run.sh", b"rm"), "files", r"run\.sh belongs to no bundle"),
    ("a huge key", put("signer.pem", b"x" * 5000), "files", "larger than any such file"),
    ("no key", put("signer.pem", b"x"), "signer", "no public key"),
    ("the signature", change_json("statement.dsse.json", other_signature), "signature", "not signed by this key"),
    ("no envelope", put("statement.dsse.json", b"[]"), "statement", "no DSSE envelope"),
    ("a damaged envelope", put("statement.dsse.json", b"{"), "statement", "not encoded"),
    (
        "another schema",
        change_payload(lambda statement: statement.update(predicateType="urn:adapm-bench:bundle:2")),
        "statement",
        "another schema",
    ),
    (
        "another statement",
        change_payload(lambda statement: statement["predicate"].update(spec_hash="0" * 64)),
        "statement",
        "something else",
    ),
    ("fewer files signed", change_payload(lambda statement: statement["subject"].pop()), "digest", r"statement|signed"),
)
"""The same without another signature, or with another statement."""


@pytest.fixture(scope="module")
def content() -> Content:
    return trained_content()


def write(folder: Path, files: Files) -> Path:
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_bytes(text)
    return folder


def signed_again(content: Content, files: Files, key: Ed25519PrivateKey = KEY) -> Files:
    unsigned_files = {name: text for name, text in files.items() if name not in ("signer.pem", "statement.dsse.json")}
    return {**unsigned_files, **sign(unsigned_files, content.document.provenance, key)}


@pytest.mark.parametrize(
    ("changed", "change", "check", "reason"),
    SIGNED + UNSIGNED,
    ids=[case[0] for case in SIGNED + UNSIGNED],
)
def test_what_was_changed_is_refused(
    content: Content, tmp_path: Path, changed: str, change: Change, check: str, reason: str
) -> None:
    files = content.files()
    change(files)
    if (changed, change, check, reason) in SIGNED:
        files = signed_again(content, files)
    with pytest.raises(BundleError) as refused:
        verify(write(tmp_path / "bundle", files))
    assert refused.value.check == check, changed
    assert re.search(reason, refused.value.reason)
    assert bool(refused.value.differences) is (check == "figures")


def test_links_and_folders_are_not_followed(content: Content, tmp_path: Path) -> None:
    folder = write(tmp_path / "bundle", content.files())
    (tmp_path / "elsewhere").write_bytes((folder / "document.json").read_bytes())
    (folder / "document.json").unlink()
    (folder / "document.json").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BundleError, match=r"files: document\.json belongs to no bundle, or is not a plain file"):
        verify(folder)
    with pytest.raises(BundleError, match="cannot be read"):
        verify(tmp_path / "nowhere")


def test_another_signer_is_refused_where_a_key_is_named(content: Content, tmp_path: Path) -> None:
    folder = write(tmp_path / "bundle", signed_again(content, content.files(), STRANGER))
    assert verify(folder).signer == fingerprint(STRANGER.public_key())
    with pytest.raises(BundleError, match="none of the keys that were given"):
        verify(folder, [fingerprint(KEY.public_key())])
    assert verify(folder, [fingerprint(STRANGER.public_key())]).is_trusted


def test_a_bundle_holds_figures_and_no_sentence(content: Content, tmp_path: Path) -> None:
    answer = content.document.comparison
    assert answer is not None and answer.notes and all(row.verdict for row in answer.rows)
    stored = json.loads(content.files()["document.json"])["comparison"]
    assert stored["notes"] == [] and {row["verdict"] for row in stored["rows"]} == {""}
    verified = verify(write(tmp_path / "bundle", content.files()))
    assert verified.document == content.document, "the reader has today's sentences"
    assert verified.figures > 200
