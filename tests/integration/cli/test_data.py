"""`adapm-bench data` as a user meets it: own files, a copy of the hub, what is listed, and the faults of all of it."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner, Result

from api.cli import main
from api.records import PreparedInfo, dataset_infos
from tests.factories.dataset import MadeSource, made_recipe, prepare_made_dataset
from tests.factories.repository import make_repository
from tests.integration.api_service import comparison_fields
from worker.catalog import datasets
from worker.catalog.datasets import DATASETS
from worker.data.documents import Split
from worker.data.manifest import Manifest
from worker.data.preparation import prepare
from worker.data.prepared import list_prepared


@pytest.fixture(autouse=True)
def data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the data folder of the commands."""
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("ADAPM_BENCH_DATA_FOLDER", str(tmp_path / "data"))
    return tmp_path / "data" / "datasets"


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Own files: 300 documents as JSON lines."""
    path = tmp_path / "corpus.jsonl"
    lines = [json.dumps({"body": f"{n} {document.text}"}) for n, document in enumerate(MadeSource().documents())]
    path.write_text("\n".join(lines))
    return path


def services(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["data", *map(str, arguments)])


def listed() -> list[dict[str, Any]]:
    prepared: list[dict[str, Any]] = json.loads(services("ls", "--json").stdout)["prepared"]
    return prepared


@pytest.mark.parametrize("tokenizer", ["byte", "bpe-512"])
def test_what_was_replaced_or_skipped_is_said(corpus: Path, tokenizer: str) -> None:
    """A document ends where it ends, and nowhere else: as many ends as documents are stored."""
    with corpus.open("a") as file:
        file.write('\n{"body": "half \\ud83d an emoji, \\u0000 and more"}\n{"body": null}')
    command = ("prepare", "own/web", "--from", corpus, "--column", "body", "--tokenizer", tokenizer)
    for _ in range(2):  # prepared, and found prepared
        result = services(*command)
        assert result.exit_code == 0, result.stderr
        assert "U+FFFD: 2 characters" in result.stderr
        assert "skipped: 1 document" in result.stderr
    manifest = json.loads(services(*command, "--json").stdout)
    assert (manifest["documents"], manifest["replaced_characters"], manifest["skipped_documents"]) == (301, 2, 1)
    shards = Path(listed()[0]["folder"]).glob("*.bin")
    ends = sum(int((np.fromfile(path, "<u2") == manifest["end_of_text"]).sum()) for path in shards)
    assert ends == 301


def test_own_files_become_a_dataset_that_a_run_trains_on(corpus: Path, tmp_path: Path) -> None:
    """Prepared with a tokenizer of their own, listed, verified, trained on by a tiny model of that vocabulary."""
    preparation = services("prepare", "own/mine", "--from", corpus, "--column", "body", "--tokenizer", "bpe-512")
    assert preparation.exit_code == 0, preparation.stderr
    assert "{dataset: own/mine, tokenizer: bpe-512}" in preparation.stdout
    (entry,) = listed()
    assert (entry["dataset"], entry["tokenizer"], entry["vocabulary_size"]) == ("own/mine", "bpe-512", 512)
    assert entry["documents"] == 300
    assert entry["data_hash"][:12] in services("ls").stdout
    assert services("ls", "--verify").exit_code == 0

    spec = {
        "workload": {
            "model": "gpt2-tiny",
            "data": {
                "dataset": "own/mine",
                "tokenizer": "bpe-512",
                "data_hash": entry["data_hash"],
                "sequence_length_tokens": 32,
            },
            "budget": {"steps": 2, "batch_sequences": 2},
            "evaluation": {"sequences": 8},
        },
        "optimizer": {"name": "adapm", "lr": 0.002},
        "seed": 1,
    }
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(spec))
    trained = CliRunner().invoke(main, ["run", str(tmp_path / "run.yaml"), "--json"])
    assert trained.exit_code == 0, trained.stderr
    result = json.loads(trained.stdout)
    assert result["data_hash"] == entry["data_hash"]
    assert result["initial_val_loss"] == pytest.approx(6.24, abs=0.1), "ln 512"


def test_a_name_stands_for_the_same_files_with_every_tokenizer(corpus: Path) -> None:
    """The same files again are taken at once; others are refused, under this tokenizer and under another."""
    command = ("prepare", "own/mine", "--from", corpus, "--column", "body")
    assert services(*command).stdout == services(*command).stdout != ""
    corpus.write_text(corpus.read_text().replace("self", "this"))
    byte_result, bpe_result = services(*command), services(*command, "--tokenizer", "bpe-300")
    assert (byte_result.exit_code, bpe_result.exit_code) == (1, 1)
    assert "own-mine-byte" in byte_result.stderr
    assert "own/mine" in bpe_result.stderr
    assert len(listed()) == 1


def test_another_data_folder_is_prepared_listed_and_verified(corpus: Path, tmp_path: Path, data_folder: Path) -> None:
    options = ("--data", tmp_path / "there")
    result = services("prepare", "own/mine", "--from", corpus, "--column", "body", *options)
    folder = tmp_path / "there" / "datasets" / "own-mine-byte"
    assert result.stderr.startswith(f"preparing {folder}\n") and folder.is_dir()
    assert [dataset["folder"] for dataset in json.loads(services("ls", "--json", *options).stdout)["prepared"]] == [
        str(folder)
    ]
    assert services("ls", "--verify", *options).exit_code == 0
    assert listed() == [] and not data_folder.exists()


def test_few_held_out_tokens_are_told(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When they are prepared, and of a specification that takes more of them."""
    options = ("--from", corpus, "--column", "body")
    small_result = services("prepare", "own/few", *options)
    enough = services("prepare", "own/half", *options, "--validation-percent", "50")
    assert "3,315 tokens" in small_result.stderr
    assert (small_result.exit_code, enough.exit_code, enough.stderr.count("\n")) == (0, 0, 1), "one line says where"
    monkeypatch.delenv("ADAPM_BENCH_URL", raising=False)
    for dataset, warned in (("own/few", True), ("own/half", False)):
        fields = comparison_fields()
        fields["workload"]["data"] = {"dataset": dataset, "tokenizer": "byte", "sequence_length_tokens": 64}
        fields["workload"]["evaluation"] = {"sequences": 64}
        (tmp_path / "spec.yaml").write_text(json.dumps(fields))
        validation = CliRunner().invoke(main, ["validate", str(tmp_path / "spec.yaml")])
        assert validation.exit_code == 0, validation.stderr
        assert ("3,315 tokens" in validation.stdout) is warned


def test_a_dataset_of_the_hub_is_streamed_up_to_its_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command's own way from the catalog through `datasets`, with the repository on this disk."""
    make_repository(tmp_path / "c4", "c4")
    entry = datasets.dataset("c4")
    assert entry is not None and entry.hub is not None
    local_entry = replace(entry, hub=replace(entry.hub, repository=str(tmp_path / "c4")))
    monkeypatch.setattr(datasets, "DATASETS", (local_entry,))
    result = services("prepare", "c4", "--tokens", "0.02M", "--validation-percent", "10", "--json")
    assert result.exit_code == 0, result.stderr
    manifest = json.loads(result.stdout)
    assert manifest["recipe"]["source_version"].endswith(f"en at {entry.hub.revision}")
    (listing,) = listed()
    assert 20_000 <= listing["training_tokens"] < 20_500


def test_ls_verify_names_every_damaged_file_and_the_way_out(data_folder: Path, corpus: Path) -> None:
    services("prepare", "own/mine", "--from", corpus, "--column", "body", "--tokenizer", "bpe-300")
    prepare_made_dataset(data_folder)
    folder = data_folder / "own-mine-bpe-300"
    shard, validation_shard = folder / "train-00000.bin", folder / "validation-00000.bin"
    content = bytearray(shard.read_bytes())
    content[99] ^= 1
    shard.write_bytes(content)
    validation_shard.unlink()
    (folder / "tokenizer.json").write_text("{}")

    result = services("ls", "--verify")
    assert result.exit_code == 1
    for part in (f"{shard} has SHA-256", f"{validation_shard} is missing", "tokenizer.json"):
        assert part in result.stderr
    assert result.stderr.count(f"Delete the folder {folder}") == 3
    listing = services("ls", "--verify", "--json")
    assert listing.exit_code == 1
    assert [len(entry["faults"]) for entry in json.loads(listing.stdout)["prepared"]] == [3, 0]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["c5"], 1, "'c5'; known: python-stdlib, "),
        (["own/mine"], 1, "--from"),
        (["own/mine", "--from", "CORPUS"], 1, "'text'; its fields: body"),
        (["own/mine", "--from", "*.jsonx"], 1, "'*.jsonx'"),
        (["python-stdlib", "--from", "CORPUS"], 1, "python-stdlib"),
        (["python-stdlib", "--tokenizer", "word"], 1, "'word'; known: byte, gpt2"),
        (["python-stdlib", "--tokenizer-file", "CORPUS"], 1, "'byte'"),
        (["python-stdlib", "--tokenizer", "gpt2", "--tokenizer-file", "CORPUS"], 1, "tokenizer"),
        (["python-stdlib", "--tokens", "many"], 2, "--tokens many"),
        (["own/mine", "--from", "CORPUS", "--column", "body", "--documents", "3"], 1, "3 read"),
    ],
)
def test_what_cannot_be_prepared_ends_with_a_sentence(
    words: list[str], code: int, said: str, corpus: Path, data_folder: Path
) -> None:
    result = services("prepare", *(str(corpus) if word == "CORPUS" else word for word in words))
    assert (result.exit_code, result.stdout) == (code, "")
    assert said in result.stderr
    assert len([line for line in result.stderr.splitlines() if not line.startswith("preparing ")]) == 1
    assert listed() == []


def test_own_data_are_listed_once_they_are_prepared_and_others_say_with_which_tokens(tmp_path: Path) -> None:
    """Nothing is prepared of most of the catalog."""
    stdlib_manifest = prepare_made_dataset(tmp_path)
    corpus = prepare(MadeSource(), made_recipe().model_copy(update={"dataset": "own/mine"}), tmp_path / "own-mine-byte")
    texts = [manifest for _, manifest in list_prepared(tmp_path) if isinstance(manifest, Manifest)]

    info_by_name = {info.name: info for info in dataset_infos(DATASETS, texts)}

    assert list(info_by_name) == [*(entry.name for entry in DATASETS), "own/mine"]
    assert info_by_name["python-stdlib"].prepared == (
        PreparedInfo(
            tokenizer="byte",
            vocabulary_size=256,
            training_tokens=stdlib_manifest.tokens(Split.TRAIN),
            validation_tokens=stdlib_manifest.tokens(Split.VALIDATION),
            data_hash=stdlib_manifest.data_hash,
        ),
    )
    assert [preparation.data_hash for preparation in info_by_name["own/mine"].prepared] == [corpus.data_hash]
    assert [name for name, info in info_by_name.items() if info.prepared] == ["python-stdlib", "own/mine"]
