"""Texts at evaluations: they come with every one, the same for the same weights, and training never notices."""

from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from tests.factories.reporters import MemoryReporter, reported
from worker.models import build_model
from worker.records.result import Point, TextSamples
from worker.reporting.reporter import FileReporter, read_reports
from worker.run import Folders, run
from worker.spec.run import RunSpec
from worker.tasks.samples import SampleWriter

PROMPTS = ["Say moon", "3 + 4 is what follows a very long way of asking for a sum"]


def spec_of(task: str = "sft", samples: dict[str, Any] | None = None, **more: Any) -> RunSpec:
    workload = {
        "task": task,
        "model": "gpt2-nano",
        "data": {"dataset": "chats", "tokenizer": "byte", "sequence_length_tokens": 40},
        "budget": {"steps": 5, "batch_sequences": 2},
        "evaluation": {"every_steps": 2, "sequences": 2, **({"samples": samples} if samples else {})},
    }
    return RunSpec.model_validate({"workload": workload | more, "optimizer": {"name": "adapm", "lr": 1e-3}, "seed": 2})


def trained(spec: RunSpec, folder: Path) -> MemoryReporter:
    folders = Folders(run_folder=folder / spec.content_hash(), dataset_folder=folder / "datasets")
    return reported(spec, folders)[0]


def losses(points: list[Point]) -> list[tuple[float | None, ...]]:
    return [(point.train_loss, point.val_loss, point.grad_norm, point.reward) for point in points]


@pytest.mark.parametrize("task", ["sft", {"kind": "rlhf", "answer_tokens": 4, "reward": "printable"}])
def test_training_keeps_every_bit_and_each_evaluation_has_its_texts(task: Any, tmp_path: Path) -> None:
    plain = trained(spec_of(task), tmp_path)
    writing = trained(spec_of(task, {"prompts": PROMPTS, "tokens": 8}), tmp_path)

    assert losses(writing.points) == losses(plain.points)
    assert not plain.samples
    assert [sample.step for sample in writing.samples] == [0, 2, 4, 5]
    for sample in writing.samples:
        assert [text.prompt for text in sample.texts] == PROMPTS
        assert all(text.ended or text.text for text in sample.texts)


def test_running_text_has_them_in_files_too(folders: Folders) -> None:
    data = {"dataset": "python-stdlib", "tokenizer": "byte", "sequence_length_tokens": 32}
    plain = spec_of("pretrain", data=data)
    writing = spec_of("pretrain", {"prompts": ["def "], "tokens": 31, "temperature": 0}, data=data)
    assert writing.content_hash() != plain.content_hash()
    reporter = FileReporter(folders.run_folder / "reports")
    run(writing, reporter, folders)
    written = read_reports(reporter.folder, TextSamples)
    assert [sample.step for sample in written] == [0, 2, 4, 5]
    assert TextSamples.model_validate_json(written[0].model_dump_json()) == written[0]


def test_a_text_is_a_function_of_weights_prompt_and_seed(tmp_path: Path) -> None:
    """The model is left in its mode, and the global random state where it was."""
    model = build_model("gpt2-nano", 1)
    write = lambda **more: SampleWriter(spec_of(samples={"prompts": PROMPTS, **more}), tmp_path).write(model, 7)  # noqa: E731
    random_state = torch.get_rng_state()
    first, repeat, reseeded_texts = write(tokens=12), write(tokens=12), write(tokens=12, seed=5)
    assert model.training
    assert torch.equal(torch.get_rng_state(), random_state)
    assert first == repeat != reseeded_texts
    assert write(tokens=12, temperature=0, seed=1) == write(tokens=12, temperature=0, seed=2)
    torch.nn.Module.eval(model)
    write(tokens=3)
    assert not model.training


def test_a_compiled_model_is_not_compiled_for_texts(tmp_path: Path) -> None:
    """Else their shapes would lead to other graphs, also for batches; here Dynamo alone is at work."""
    from torch._dynamo.utils import counters  # takes a second

    model, plain = build_model("gpt2-nano", 1), build_model("gpt2-nano", 1)
    model.compile(backend="eager")
    model(torch.zeros(2, 40, dtype=torch.int64))
    graphs = dict(counters["stats"])
    assert graphs["unique_graphs"] > 0
    samples = {"prompts": PROMPTS, "tokens": 3}
    written = SampleWriter(spec_of(samples=samples, execution={"compile": True}), tmp_path).write(model, 1)
    assert dict(counters["stats"]) == graphs
    assert written == SampleWriter(spec_of(samples=samples), tmp_path).write(plain, 1)


@pytest.mark.parametrize(
    ("samples", "more", "said"),
    [
        ({"prompts": []}, {}, "at least 1"),
        ({"prompts": ["x"] * 9}, {}, "at most 8"),
        ({"prompts": ["a\0b"]}, {}, "pattern"),
        ({"prompts": ["x"], "tokens": 40}, {}, "must be below data.sequence_length_tokens = 40"),
        ({"prompts": ["x"], "tokens": 9}, {"budget": {"steps": 2002, "batch_sequences": 2}}, "makes 1,001 evaluations"),
    ],
)
def test_samples_are_bounded(samples: dict[str, Any], more: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        spec_of(samples=samples, **more)


def test_one_process_of_several_with_a_part_of_the_model_writes_nothing() -> None:
    fields = spec_of(samples={"prompts": ["x"], "tokens": 4}, execution={"parallel": "fsdp"}).model_dump(mode="json")
    with pytest.raises(ValidationError, match="one process writes them"):
        RunSpec.model_validate(fields | {"resources": {"processes": 2}})
