"""`adapm-bench models MODEL`: readable at 120 columns, pure JSON, one sentence for what cannot be understood."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from api.cli import main
from dashboards.text.block_plans import fold_blocks
from worker.catalog import presets
from worker.records.footprint import PlannedBlock


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return the folder of counts, of each test alone."""
    monkeypatch.setenv("ADAPM_BENCH_DATA_FOLDER", str(tmp_path / "data"))
    return tmp_path / "data" / "footprints"


@pytest.fixture
def cli(monkeypatch):
    """Call `adapm-bench` with words; without a service."""
    monkeypatch.delenv("COLUMNS", raising=False)
    return lambda *arguments: CliRunner().invoke(main, list(arguments), catch_exceptions=False)


def pure_json(result: Result) -> Any:
    assert (result.exit_code, result.stderr) == (0, "")
    return json.loads(result.stdout)


def vector(parameter: str, size: int = 4, label: str = "") -> PlannedBlock:
    return PlannedBlock(
        block=f"{parameter}:{label}" if label else parameter,
        parameter=parameter,
        index=None,
        slice=None,
        shape=(size,),
        kind="vector",
        first_moment="full",
        second_moment="element",
        rank=0,
        state_dtype="float32",
        state_bytes=8 * size,
    )


@pytest.mark.parametrize(
    ("blocks", "folds"),
    [
        ([vector("norm")], [("norm", 1)]),
        ([vector(f"h.{i}.norm") for i in range(12)], [("h.0–11.norm", 12)]),
        ([vector(f"h.{i}.norm") for i in (0, 2, 3)], [("h.0,2,3.norm", 3)]),
        ([vector(f"h.{i}.norm", 4 + i % 2) for i in range(4)], [("h.0,2.norm", 2), ("h.1,3.norm", 2)]),
        (
            [vector(f"h.{i}.experts.down", label=f"{e}") for i in range(2) for e in range(3)],
            [("h.0–1.experts.down:0–2", 6)],
        ),
        # Not every layer has every expert: no range would say so.
        ([vector("h.0.e.0"), vector("h.0.e.1"), vector("h.1.e.0")], [("h.0.e.0", 1), ("h.0.e.1", 1), ("h.1.e.0", 1)]),
        # A number inside a word is part of the word.
        ([vector("fc1.bias"), vector("fc2.bias")], [("fc1.bias", 1), ("fc2.bias", 1)]),
    ],
)
def test_layers_of_one_shape_are_folded(blocks: list[PlannedBlock], folds: list[tuple[str, int]]):
    assert [(fold.name, len(fold.blocks)) for fold in fold_blocks(blocks)] == folds


def test_the_plan_is_a_table_with_its_totals(cli):
    result = cli("models", "gpt2-tiny", "--blocks", "--optimizers", "adapm-mini")
    lines = [line.rstrip() for line in result.stdout.splitlines()]
    assert result.exit_code == 0
    assert max(len(line) for line in lines) <= 120
    assert lines[0].split() == ["block", "shape", "kind", "first", "moment", "second", "state"]
    (query,) = [line for line in lines if line.startswith("transformer.h.0–3.attn.c_attn:query")]
    assert "×4" in query and query.endswith("24.6 kB")
    assert all(figure in lines[-1] for figure in ("858,880", "60 blocks", "506 kB", "7.4 %"))


def test_memory_is_a_table_with_the_savings_against_adamw(cli):
    text = " ".join(cli("models", "gpt2-1.5b", "--optimizers", "adamw,adapm-mini").stdout.split())
    assert text.startswith("gpt2-1.5b: 1,557,611,200")
    assert "adamw 12.5 GB — 24.9 GB" in text
    assert "adapm-mini 846 MB 93 % 13.3 GB" in text


def test_the_same_question_is_counted_once_and_another_or_a_damaged_answer_anew(
    cli, cache: Path, monkeypatch: pytest.MonkeyPatch
):
    command = ("models", "gpt2-tiny", "--optimizers", "adamw", "--json")
    first = cli(*command).stdout
    (cache_file,) = cache.iterdir()
    with monkeypatch.context() as patched:
        patched.setattr("worker.footprint.count.footprint", lambda *_, **__: pytest.fail("counted again"))
        assert cli(*command).stdout == first
        for options in (("--ranks", "2"), ("--rule", "*=full"), ("--state-dtype", "bf16"), ("--optimizers", "lion")):
            with pytest.raises(pytest.fail.Exception):
                cli(*command, *options)
    cache_file.write_text("{")
    assert cli(*command).stdout == first and json.loads(cache_file.read_text())["model"] == "gpt2-tiny"
    cache_file.unlink()
    cache.rmdir()
    cache.write_text("no folder")
    assert cli(*command).stdout == first, "a folder that cannot be written stops nothing"


def test_what_fits_a_card_is_a_table_with_the_largest_micro_batches(cli):
    command = ("models", "gpt2-nano", "--memory", "0.5", "--optimizers", "adamw,adapm", "--length", "64")
    counted = pure_json(cli(*command, "--json"))
    assert (counted["precision"], counted["sequence_length_tokens"]) == ("bf16", 64)
    lines = [line.split() for line in cli(*command).stdout.splitlines()]
    for name in ("adamw", "adapm"):
        plain, checkpointed = sorted(
            (fit["most_sequences"] for fit in counted["fits"] if fit["optimizer"] == name),
        )
        assert 0 < plain < checkpointed
        (row,) = (line for line in lines if line[:1] == [name])
        assert {str(plain), str(checkpointed), "activations"} <= set(row)


def test_of_every_model_the_largest_micro_batch_on_a_card(cli, monkeypatch: pytest.MonkeyPatch):
    selection = [presets.preset(name) for name in ("gpt2-nano", "mixtral-tiny")]
    monkeypatch.setattr("worker.catalog.presets.names", lambda: tuple(preset.name for preset in selection))
    nano, mixtral = pure_json(cli("models", "--memory", "0.5", "--optimizers", "adamw", "--json"))
    assert [fit["optimizer"] for fit in nano["fits"]] == ["adamw", "adamw"]
    assert (mixtral["fits"], bool(mixtral["passes_unknown_because"])) == ([], True)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["models", "gpt2-tiny", "--memory", "24", "--ranks", "2"], "--ranks"),
        (["models", "gpt2-tiny", "--memory", "24", "--length", "257"], "256 positions"),
        (["models", "gpt5", "--memory", "24"], "unknown model"),
        (["models", "gpt5", "--blocks"], f"'gpt5'; known: {', '.join(presets.names())}"),
        (["models", "gpt2-tiny", "--optimizers", "adapm", "--rank-ratio", "2"], "rank_ratio=2.0"),
        (["models", "gpt2-tiny", "--blocks", "--optimizers", "sdg"], "did you mean sgd?"),
        (["models", "gpt2-tiny", "--blocks", "--optimizers", "adamw"], "adapm, adapm-mini"),
        (["models", "gpt2-tiny", "--blocks", "--rule", "*.mlp.*.weight"], "cannot be understood at '*.mlp.*.weight'"),
        (["models", "gpt2-tiny", "--blocks", "--rule", "*.nowhere=full"], "fits no trainable block"),
        (["models", "gpt2-tiny", "--blocks", "--optimizers", "adamw", "--rule", "*=full"], "has no block plan"),
    ],
)
def test_what_cannot_be_understood_is_one_sentence_and_exit_code_2(cli, words: list[str], sentence: str):
    result = cli(*words)
    assert (result.exit_code, result.stdout, len(result.stderr.splitlines())) == (2, "", 1)
    assert sentence in result.stderr


def test_rules_change_the_plan_and_the_bytes(cli):
    rules = ("--rule", "*.mlp.*.weight=none", "--rule", "*.c_attn.weight:key=rank:7,per:neuron")
    plain = pure_json(cli("models", "gpt2-tiny", "--blocks", "--json"))
    ruled = pure_json(cli("models", "gpt2-tiny", "--blocks", *rules, "--json"))
    blocks = {block["block"]: block for block in ruled["blocks"]}
    key = blocks["transformer.h.0.attn.c_attn.weight:key"]
    assert blocks["transformer.h.0.mlp.c_fc.weight"]["first_moment"] == "none"
    assert (key["first_moment"], key["rank"], key["second_moment"]) == ("low rank", 7, "neuron")
    assert ruled["state_bytes"] < plain["state_bytes"]
    held = pure_json(cli("models", "gpt2-tiny", "--optimizers", "adamw,adapm", *rules, "--json"))
    (_, adapm) = held["optimizers"]
    assert adapm["state_bytes"] == ruled["state_bytes"] + adapm["counter_bytes"]
