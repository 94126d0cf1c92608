"""A spec is closed, says every fault with its place, and hashes by content."""

from typing import Any

import pytest
from pydantic import ValidationError

from worker.spec.run import Resources, RunSpec


def spec(**changes: Any) -> dict[str, Any]:
    """The least that a run needs, with `a__b=value` setting `a.b`."""
    fields: dict[str, Any] = {
        "workload": {"model": "gpt2-tiny", "budget": {"steps": 10}},
        "optimizer": {"name": "adamw", "lr": 1e-3},
        "seed": 1,
    }
    for path, value in changes.items():
        *folders, name = path.split("__")
        section = fields
        for folder in folders:
            section = section.setdefault(folder, {})
        section[name] = value
    return fields


def test_shards_are_for_optimizers_that_do_not_need_whole_parameters() -> None:
    """Asked for by several processes; one has the whole model. The sentence names the way out."""
    sharding = {"workload__execution__parallel": "fsdp", "resources__processes": 2}
    for name in ("adapm", "adapm-mini", "adam-mini", "adamw"):
        RunSpec.model_validate(spec(optimizer__name=name, **sharding))
    RunSpec.model_validate(spec(optimizer__name="muon", workload__execution__parallel="fsdp"))
    refused = faults(spec(optimizer__name="muon", **sharding))["optimizer.name"]
    assert refused.startswith("muon ") and "ddp" in refused and "adapm-mini" in refused
    exact = faults(spec(optimizer__name="adapm", optimizer__options={"solver": "svd"}, **sharding))["optimizer.name"]
    assert exact.startswith("adapm's solver svd")
    refusals = faults(spec(workload__probes={}, workload__execution__compile=True, **sharding))
    assert set(refusals) == {"workload.probes", "workload.execution.compile"}


def test_a_checkpoint_is_known_by_all_but_the_resources_of_its_run() -> None:
    first, second = (RunSpec.model_validate(spec(resources__processes=count)) for count in (1, 2))
    assert first.content_hash() != second.content_hash()
    assert first.training_hash() == second.training_hash()
    other_seed = RunSpec.model_validate(spec(seed=2))
    assert first.training_hash() != other_seed.training_hash()
    sharded = RunSpec.model_validate(spec(workload__execution__parallel="ddp"))
    assert sharded.content_hash() == RunSpec.model_validate(spec()).content_hash()  # as before there was a choice


def faults(raw: dict[str, Any]) -> dict[str, str]:
    with pytest.raises(ValidationError) as refused:
        RunSpec.model_validate(raw)
    return {".".join(map(str, error["loc"])): error["msg"] for error in refused.value.errors()}


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("surprise", 1, "not permitted"),
        ("workload__model", "gpt5", "'gpt5'; known: gpt2-tiny"),
        ("workload__data__dataset", "c5", "'c5'; known: python-stdlib"),
        ("workload__data__tokenizer", "word", "'word'; known: byte"),
        ("workload__data__sequence_length_tokens", 257, "at most 256"),
        ("workload__data__tokenizer", "bpe-256", "bpe-<257 to 200000>"),
        ("workload__data__dataset", "own/../../etc", "unknown dataset 'own/../../etc'"),
        ("workload__data__data_hash", "abc", "should match pattern"),
        ("workload__initial_weights", "somebody/else", "openai-community/gpt2-medium"),
        ("workload__initial_weights", "openai-community/gpt2", "gpt2-124m, not of gpt2-tiny"),
        ("workload__schedule__warmup_steps", 10, "budget.steps = 10"),
        ("workload__execution__micro_batch_sequences", 9, "at most budget.batch_sequences = 8"),
        ("workload__precision", "fp8", "'fp32' or 'bf16'"),
        ("optimizer__name", "adamx", "'adamx'; known: adamw"),
        ("optimizer__lr", "1e-3", "valid number"),
        ("optimizer__options__zeta", 1, "beta2?"),
        ("optimizer__options__beta1", 1.0, "[0, 1)"),
        ("resources__processes", 2.0, "valid integer"),
        ("resources__gpus", 0.5, "valid integer"),
    ],
)
def test_every_fault_is_refused_at_its_place_with_what_is_allowed(path: str, value: object, said: str) -> None:
    """One fault in an otherwise good spec gives exactly one error, where it is."""
    message_by_path = faults(spec(**{path: value}))

    assert list(message_by_path) == [path.replace("__", ".")]
    assert said in message_by_path[path.replace("__", ".")]


def test_equal_content_has_equal_hashes_and_any_change_another() -> None:
    """Defaults written out, another order, and whole numbers for fractions do not matter; every field does."""
    base = RunSpec.model_validate(spec())
    written_out = RunSpec.model_validate(
        {"seed": 1, **spec(optimizer__lr=0.001, workload__task="pretrain", resources__cpus=1)}
    )
    assert written_out.content_hash() == base.content_hash()
    assert RunSpec.model_validate(spec(optimizer__lr=1)) == RunSpec.model_validate(spec(optimizer__lr=1.0))
    changes: list[dict[str, Any]] = [
        {"seed": 2},
        {"optimizer__lr": 2e-3},
        {"optimizer__name": "adapm"},
        {"optimizer__options__beta1": 0.8},
        {"workload__model": "llama-tiny"},
        {"workload__budget__steps": 11},
        {"resources__cpus": 2},
    ]
    hashes = {RunSpec.model_validate(spec(**change)).content_hash() for change in changes}
    assert len(hashes | {base.content_hash()}) == len(changes) + 1


@pytest.mark.parametrize(
    ("model", "tokenizer"),
    [("gpt2-124m", "gpt2"), ("gpt2-124m", "bpe-50257"), ("gpt2-tiny", "bpe-512"), ("llama-60m", "own/mine")],
)
def test_vocabularies_that_fit_are_taken(model: str, tokenizer: str) -> None:
    """A tiny model takes the vocabulary of any tokenizer; that of an own one only its data tell."""
    run_spec = RunSpec.model_validate(spec(workload__model=model, workload__data__tokenizer=tokenizer))
    assert run_spec.workload.data.tokenizer == tokenizer


def test_a_tokenizer_with_more_tokens_than_the_model_is_refused() -> None:
    message_by_path = faults(spec(workload__model="llama-60m", workload__data__tokenizer="gpt2"))
    assert list(message_by_path) == ["workload.data.tokenizer"]
    assert (
        "50257" in message_by_path["workload.data.tokenizer"] and "32000" in message_by_path["workload.data.tokenizer"]
    )


@pytest.mark.parametrize(
    ("changes", "place", "said"),
    [
        ({"workload__budget__batch_sequences": 9}, "workload.budget.batch_sequences", "multiple of 2"),
        (
            {"workload__execution__micro_batch_sequences": "auto"},
            "workload.execution.micro_batch_sequences",
            "2 processes",
        ),
        (
            {"workload__execution__micro_batch_sequences": 5},
            "workload.execution.micro_batch_sequences",
            "at most 4",
        ),
        ({"workload__task": "rlhf"}, "workload.task", "2 processes"),
    ],
)
@pytest.mark.parametrize("asked", [{"resources__processes": 2}, {"resources__gpus": 2}])
def test_what_several_processes_cannot_share_is_refused(
    asked: dict[str, Any], changes: dict[str, Any], place: str, said: str
) -> None:
    """Batches of 8 sequences: each process has 4 of them."""
    message_by_path = faults(spec(**asked, **changes))

    assert list(message_by_path) == [place]
    assert said in message_by_path[place]


def test_every_process_has_one_gpu_or_none() -> None:
    """As many processes as GPUs, also unsaid; each has its CPUs."""
    assert "gpus = 2" in faults(spec(resources={"gpus": 2, "processes": 3}))["resources.processes"]
    assert [Resources.model_validate(fields).process_count() for fields in ({}, {"gpus": 1}, {"gpus": 4})] == [1, 1, 4]
    assert Resources(cpus=3, processes=2).total_cpus() == 6
    assert Resources(cpus=3, gpus=2, processes=2).total_cpus() == 6


def test_a_spec_that_does_not_speak_of_processes_keeps_the_hash_it_had() -> None:
    """Checkpoints and results of earlier versions belong to it."""
    assert RunSpec.model_validate(spec()).model_dump(mode="json")["resources"] == {"cpus": 1, "gpus": 0}
    two = RunSpec.model_validate(spec(resources__processes=2))
    assert RunSpec.model_validate_json(two.model_dump_json()) == two
    assert two.content_hash() != RunSpec.model_validate(spec()).content_hash()


def test_rules_are_for_optimizers_with_a_block_plan_and_in_the_form_of_the_command_line() -> None:
    """A rule that no plan could take, or that says nothing, is a fault at its place."""
    ruled = RunSpec.model_validate(spec(optimizer__name="adapm", optimizer__rules=["*.mlp.*=rank:8,per:neuron"]))
    assert ruled.optimizer.rules == ("*.mlp.*=rank:8,per:neuron",)
    assert set(faults(spec(optimizer__name="adamw", optimizer__rules=["*=full"]))) == {"optimizer.rules"}
    assert set(faults(spec(optimizer__name="adapm", optimizer__rules=["*=most"]))) == {"optimizer.rules.0"}
