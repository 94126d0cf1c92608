"""`verify` and `board` at the command line, which need no service; keys that sign."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from typer.testing import CliRunner

from api.bundles.layout import BundleError
from api.bundles.publication import write_bundle
from api.bundles.signing import fingerprint, signing_key
from api.cli import main
from tests.factories.bundles import KEY, Content, trained_content

THEIRS = Ed25519PrivateKey.from_private_bytes(bytes(range(2, 34)))
OURS, STRANGERS = (fingerprint(key.public_key()) for key in (KEY, THEIRS))


def call(*arguments: Any, text: str | None = None) -> Any:
    return CliRunner().invoke(main, [*map(str, arguments)], input=text, catch_exceptions=False)


@pytest.fixture(scope="module")
def content() -> Content:
    return trained_content()


@pytest.fixture(scope="module")
def folder(content: Content, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two bundles as `publish` writes them, one that was tampered with, and a link to where they stand."""
    folder = tmp_path_factory.mktemp("published")
    for name, key in (("ours/bundle", KEY), ("theirs/bundle", THEIRS), ("theirs/bad", THEIRS)):
        write_bundle(folder / name, content.document, content.files()["points.parquet"], key)
    (folder / "theirs/bad/document.json").write_text("<script>")
    (folder / "theirs/loop").symlink_to(folder / "theirs")
    return folder


def test_a_bundle_is_verified_and_says_by_whom(folder: Path) -> None:
    printed = call("verify", folder / "ours/bundle", "--signer", f"sha256:{OURS}")
    assert printed.exit_code == 0
    assert printed.stdout.startswith("verified: momentum on a regression (comparison, k3v9m2x710)\n")
    assert OURS in printed.stdout and "keys" in printed.stdout
    answer = json.loads(call("verify", folder / "ours/bundle", "--json").stdout)
    assert (answer["verified"], answer["signer"], answer["signer_is_trusted"]) == (True, OURS, False)
    assert answer["results"] == answer["runs"] == 16


def test_a_stored_figure_that_does_not_follow_is_listed(content: Content, tmp_path: Path) -> None:
    answer = content.document.comparison
    assert answer is not None
    document = content.document.model_copy(update={"comparison": answer.model_copy(update={"complete": False})})
    (tmp_path / "bundle").mkdir()
    for name, text in content.files(document).items():
        (tmp_path / "bundle" / name).write_bytes(text)
    printed = call("verify", tmp_path / "bundle", "--json")
    assert printed.exit_code == 1
    refusal = json.loads(printed.stdout)
    assert (refusal["verified"], refusal["check"]) == (False, "figures")
    assert refusal["differences"] == [{"figure": "comparison.complete", "stored": False, "recomputed": True}]
    with pytest.raises(BundleError, match="figures"):
        write_bundle(tmp_path / "new", document, content.files()["points.parquet"], KEY)
    assert [path.name for path in tmp_path.iterdir()] == ["bundle"], "nothing is left of what would not be believed"


def test_a_board_lists_the_verified_verdicts_with_their_signers(folder: Path, content: Content, tmp_path: Path) -> None:
    command = ["board", folder / "ours", folder / "theirs", "-o", tmp_path / "site"]
    answer = json.loads(call(*command, "--json").stdout)
    assert answer["bundles"] == 2
    assert answer["refused"] == {str(folder / "theirs/bad"): "digest: document.json is not as it was signed"}
    assert [(line["candidate"], line["baseline"], line["signer"]) for line in answer["verdicts"]] == [
        ("asgd", "sgd", OURS),
        ("asgd", "sgd", STRANGERS),
    ]
    comparison = content.document.comparison
    assert comparison is not None
    row = next(row for row in comparison.rows if not row.is_baseline)
    assert row.difference is not None
    assert answer["verdicts"][0]["difference"] == row.difference.model_dump(mode="json")
    assert answer["verdicts"][0]["device_hours"] == row.device_hours
    (page,) = (tmp_path / "site").iterdir()
    text = page.read_text()
    assert OURS in text and STRANGERS in text and "digest: document.json" in text
    assert row.verdict.partition(":")[0] in text
    assert "default-src 'none'" in text and "<script" not in text
    assert re.findall(r"(?:src|href)=", text) == [], "the page loads nothing"
    trusted = json.loads(call(*command, "--json", "--signer", OURS).stdout)
    assert (trusted["bundles"], len(trusted["refused"])) == (1, 2)


def test_a_board_without_a_bundle_that_holds_is_a_failure(folder: Path, tmp_path: Path) -> None:
    printed = call("board", folder / "theirs/bad", "-o", tmp_path / "site")
    assert printed.exit_code == 1 and "0 verdicts" in printed.stdout and "refused: " in printed.stderr
    assert call("board", tmp_path / "nowhere", "-o", tmp_path / "site").exit_code == 2


def test_a_key_is_made_once_and_is_nobody_elses_to_read(tmp_path: Path) -> None:
    path = tmp_path / "data" / "bundles.pem"
    key = signing_key(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert fingerprint(signing_key(path).public_key()) == fingerprint(key.public_key())
    path.write_text("-----BEGIN PRIVATE KEY-----\n")
    with pytest.raises(BundleError, match="cannot be used to sign"):
        signing_key(path)
