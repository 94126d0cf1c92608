"""`verify` at the command line, which needs no service; keys that sign."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from api.bundles.layout import BundleError
from api.bundles.publication import write_bundle
from api.bundles.signing import BundleKeyError, fingerprint, signing_key
from api.cli import main
from tests.factories.bundles import KEY, Content, trained_content


def verify(*words: Any) -> Any:
    return CliRunner().invoke(main, ["verify", *map(str, words)], catch_exceptions=False)


@pytest.fixture(scope="module")
def content() -> Content:
    return trained_content()


@pytest.fixture(scope="module")
def bundle(content: Content, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `publish` writes it."""
    folder = tmp_path_factory.mktemp("published") / "bundle"
    write_bundle(folder, content.document, content.attempts, content.files()["points.parquet"], KEY)
    return folder


def test_a_bundle_is_verified_and_says_by_whom(bundle: Path) -> None:
    signer = fingerprint(KEY.public_key())
    printed = verify(bundle, "--signer", f"SHA256:{signer}".replace("SHA256", "sha256"))
    assert printed.exit_code == 0
    assert printed.stdout.startswith("verified: momentum on a regression (comparison, k3v9m2x710)\n")
    assert signer in printed.stdout and "one of the keys that were given" in printed.stdout
    answer = json.loads(verify(bundle, "--json").stdout)
    assert (answer["verified"], answer["signer"], answer["signer_is_trusted"]) == (True, signer, False)
    assert answer["results"] == answer["runs"] == 16


def test_a_run_of_it_is_trained_again(bundle: Path) -> None:
    printed = verify(bundle, "--rerun", "--run", "k3v9m2x710-12")
    assert printed.exit_code == 0
    assert "k3v9m2x710-12: 21 points are the same to the bit" in " ".join(printed.stdout.split())


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--signer", "0" * 64), 1, "refused: signer: signed by "),
        (("--run", "k3v9m2x710-12"), 2, "--run needs --rerun"),
        (("--rerun", "--run", "nowhere"), 1, "no run of it can be trained again"),
    ],
)
def test_what_is_refused_says_why(bundle: Path, words: tuple[str, ...], code: int, said: str) -> None:
    printed = verify(bundle, *words)
    assert printed.exit_code == code
    assert said in printed.stderr


def test_a_refusal_as_json(tmp_path: Path) -> None:
    printed = verify(tmp_path / "nowhere", "--json")
    assert printed.exit_code == 1
    assert json.loads(printed.stdout)["check"] == "files"


def test_nothing_is_left_of_a_bundle_that_would_not_be_believed(content: Content, tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="attempts"):
        write_bundle(tmp_path / "bundle", content.document, (), content.files()["points.parquet"], KEY)
    assert list(tmp_path.iterdir()) == []


def test_a_key_is_made_once_and_is_nobody_elses_to_read(tmp_path: Path) -> None:
    path = tmp_path / "data" / "bundles.pem"
    key = signing_key(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert fingerprint(signing_key(path).public_key()) == fingerprint(key.public_key())
    path.write_text("-----BEGIN PRIVATE KEY-----\n")
    with pytest.raises(BundleKeyError, match="cannot be used to sign"):
        signing_key(path)
