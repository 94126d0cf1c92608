"""A board of bundles: ranked by workload, each verified, of two installations together; pages that load nothing."""

import json
import re
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from typer.testing import CliRunner

from api.bundles.publication import write_bundle
from api.bundles.signing import fingerprint
from api.cli import main
from tests.factories.bundles import KEY, trained_content

THEIRS = Ed25519PrivateKey.from_private_bytes(bytes(range(2, 34)))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of ours, theirs, and one that was tampered with."""
    folder, content = tmp_path_factory.mktemp("board"), trained_content()
    for name, key in (("ours/one", KEY), ("theirs/two", THEIRS), ("theirs/bad", THEIRS)):
        write_bundle(folder / name, content.document, content.attempts, content.files()["points.parquet"], key)
    (folder / "theirs/bad/comparison.md").write_text("<script>")
    words = ["board", str(folder / "ours"), str(folder / "theirs"), "-o", str(folder / "site"), "--json"]
    printed = CliRunner().invoke(main, words, catch_exceptions=False)
    assert printed.exit_code == 0
    answer = json.loads(printed.stdout)
    assert answer["submissions"] == 2
    assert answer["refused"] == {str(folder / "theirs/bad"): "digest: comparison.md is not the file that was signed"}
    return folder / "site"


def test_both_installations_keep_their_provenance(site: Path) -> None:
    index = (site / "index.html").read_text()
    rows = re.findall(r"<tr><td>(\d)</td>.*?<bdi>(.*?)</bdi>.*?<code>(\w+)</code></td></tr>", index)
    ours, theirs = (fingerprint(key.public_key())[:12] for key in (KEY, THEIRS))
    assert [(rank, title) for rank, title, _ in rows] == [
        ("1", "SGD"),
        ("2", "SGD"),
        ("3", "Accelerated SGD"),
        ("4", "Accelerated SGD"),
    ]
    assert {signer for _, _, signer in rows} == {ours, theirs}
    assert "digest: comparison.md is not the file that was signed" in index
    assert sorted(page.name for page in site.iterdir()) == sorted(
        ["index.html", f"k3v9m2x710-{ours}.html", f"k3v9m2x710-{theirs}.html"]
    )
    assert re.findall(r'href="([^"]+\.html)"', index) and all(
        (site / page).exists() for page in re.findall(r'href="([^"]+\.html)"', index)
    )


def test_a_submissions_page_says_what_was_verified(site: Path) -> None:
    page = next(site.glob("k3v9m2x710-*.html")).read_text()
    assert "every figure and sentence follows from the raw content, byte for byte" in page
    assert trained_content().experiment.spec_hash in page
    assert page.count('media="(prefers-color-scheme: dark)"') == 2
    answer = trained_content().document.comparison
    assert answer is not None
    verdict = next(row.verdict for row in answer.rows if row.difference)
    assert verdict.partition(":")[0] in page


def test_pages_are_small_and_load_nothing(site: Path) -> None:
    for page in site.iterdir():
        text = page.read_text()
        assert len(text) < 300_000
        assert "default-src 'none'" in text
        assert "<script" not in text
        assert re.findall(r'(?:src|srcset|href)="(?!data:|index\.html|k3v9m2x710-)', text) == []


def test_no_folder_is_refused(tmp_path: Path) -> None:
    printed = CliRunner().invoke(main, ["board", str(tmp_path / "nowhere"), "-o", str(tmp_path / "site")])
    assert (printed.exit_code, printed.stderr) == (2, f"{tmp_path / 'nowhere'} is no folder\n")
