"""Initial weights: the same tensors, hashed, and refused with a reason where they are those of another model."""

import json
from pathlib import Path

import pytest
import torch

from tests.factories.reporters import MemoryReporter
from tests.factories.specification import made_spec
from worker.data.weights import InitialWeights, find_weights
from worker.errors import WeightsError
from worker.models import build_model
from worker.run import Folders, run
from worker.spec.run import RunSpec


def saved(
    folder: Path, model: str = "gpt2-tiny", *, seed: int = 7, vocabulary_size: int | None = None
) -> InitialWeights:
    """Weights of a tiny model under the name `own/mine` in a data folder."""
    built = build_model(model, seed, vocabulary_size=vocabulary_size)
    built.save_pretrained(folder / "weights" / "mine")
    return find_weights("own/mine", folder)


@pytest.mark.parametrize("model", ["gpt2-tiny", "llama-tiny"])
def test_a_model_starts_from_exactly_these_weights(model: str, tmp_path: Path) -> None:
    """Whatever the seed; tied heads stay tied, and the model is like a fresh one in every other way."""
    weights = saved(tmp_path, model)
    loaded, original, fresh = build_model(model, 1, weights=weights), build_model(model, 7), build_model(model, 1)

    assert loaded.state_dict().keys() == original.state_dict().keys()
    assert all(torch.equal(loaded.state_dict()[name], tensor) for name, tensor in original.state_dict().items())
    assert loaded.training
    assert sum(p.numel() for p in loaded.parameters()) == sum(p.numel() for p in fresh.parameters())
    tokens = torch.arange(64).reshape(2, 32)
    assert torch.equal(loaded(tokens).logits, original(tokens).logits)
    assert loaded.config._attn_implementation == "sdpa"


def test_weights_that_say_gelu_new_are_those_of_gpt2(tmp_path: Path) -> None:
    """As OpenAI's are published: saved by transformers with its own defaults, and computing the same logits."""
    from transformers.models.gpt2.configuration_gpt2 import GPT2Config
    from transformers.models.gpt2.modeling_gpt2 import GPT2LMHeadModel

    config = build_model("gpt2-tiny", 0).config
    names = ("vocab_size", "n_positions", "n_embd", "n_layer", "n_head")
    plain = GPT2LMHeadModel(GPT2Config(**{name: getattr(config, name) for name in names}))
    torch.nn.Module.eval(plain)
    plain.save_pretrained(tmp_path / "weights" / "published")
    assert json.loads((tmp_path / "weights/published/config.json").read_text())["activation_function"] == "gelu_new"

    loaded = build_model("gpt2-tiny", 1, weights=find_weights("own/published", tmp_path))
    tokens = torch.arange(64).reshape(2, 32)
    assert torch.allclose(loaded(tokens).logits, plain(tokens).logits, atol=1e-5)


def test_the_hash_is_over_the_tensors_files(tmp_path: Path) -> None:
    """Equal weights have equal hashes; others have others."""
    assert saved(tmp_path / "a").sha256 == saved(tmp_path / "b").sha256 != saved(tmp_path / "c", seed=8).sha256


def test_a_run_records_which_weights_it_started_from(folders: Folders, tmp_path: Path) -> None:
    """Its loss before training is that of the weights, which were saved from another seed."""
    weights = saved(tmp_path)
    datasets = tmp_path / "python-stdlib-byte"
    datasets.symlink_to(folders.dataset_folder / "python-stdlib-byte")
    spec = made_spec(steps=3)
    fields = spec.model_dump()
    fields["workload"]["initial_weights"] = "own/mine"
    own_folders = Folders(run_folder=tmp_path / "run", dataset_folder=tmp_path)
    result = run(RunSpec.model_validate(fields), MemoryReporter(), own_folders)
    drawn = run(
        made_spec(steps=3, seed=7), MemoryReporter(), Folders(run_folder=tmp_path / "7", dataset_folder=tmp_path)
    )

    assert result.initial_weights_sha256 == weights.sha256
    assert drawn.initial_weights_sha256 is None
    assert result.initial_val_loss == drawn.initial_val_loss


def test_another_shape_is_named_with_both(tmp_path: Path) -> None:
    weights = saved(tmp_path, vocabulary_size=512)
    with pytest.raises(
        WeightsError, match=r"do not fit the model: .*wte.weight is \(512, 128\), not \(256, 128\).*own model"
    ):
        build_model("gpt2-tiny", 0, weights=weights)


def test_another_architecture_is_named_field_by_field(tmp_path: Path) -> None:
    """Heads and the kind of activation change no shape, and make another model of the same numbers."""
    weights = saved(tmp_path)
    path = weights.folder / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps(config | {"n_head": 8, "activation_function": "relu"}))
    with pytest.raises(WeightsError, match=r"n_head is 8, the model's is 4; activation_function is 'relu'"):
        build_model("gpt2-tiny", 0, weights=weights)
    with pytest.raises(WeightsError, match="model_type is 'gpt2', the model's is 'llama'"):
        build_model("llama-tiny", 0, weights=weights)


def test_missing_tensors_and_damaged_files_are_refused(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    weights = saved(tmp_path)
    path = weights.folder / "model.safetensors"
    tensors = load_file(path)
    save_file({name: t for name, t in tensors.items() if not name.endswith("ln_f.bias")}, path, {"format": "pt"})
    with pytest.raises(WeightsError, match=r"transformer\.ln_f\.bias is missing"):
        build_model("gpt2-tiny", 0, weights=weights)
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(WeightsError, match="cannot read the weights 'own/mine'"):
        build_model("gpt2-tiny", 0, weights=weights)


def test_only_safetensors_of_known_names_are_read(tmp_path: Path) -> None:
    """No folder, no pickle, no repository beside the allowlist."""
    with pytest.raises(WeightsError, match=r"there are no weights 'own/none'\. Copy a folder that `save_pretrained`"):
        find_weights("own/none", tmp_path)
    (tmp_path / "weights" / "pickled").mkdir(parents=True)
    (tmp_path / "weights" / "pickled" / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(WeightsError, match=r"holds no safetensors file.*pickles are not read"):
        find_weights("own/pickled", tmp_path)
    with pytest.raises(
        WeightsError, match="the weights 'somebody/else' are not allowed; allowed: openai-community/gpt2"
    ):
        find_weights("somebody/else", tmp_path)


def test_a_vocabulary_larger_than_the_models_is_refused_and_tiny_models_follow_the_tokenizer() -> None:
    with pytest.raises(WeightsError, match="the tokenizer has 50258 tokens, more than the 50257 of gpt2-40m"):
        build_model("gpt2-40m", 0, vocabulary_size=50258)
    assert build_model("gpt2-tiny", 0, vocabulary_size=512).get_input_embeddings().weight.shape == (512, 128)
