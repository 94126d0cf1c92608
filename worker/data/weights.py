"""Initial weights from safetensors: found by name, hashed, checked against the model, never executed.

`own/<name>` is the folder `weights/<name>` among the datasets, as transformers' `save_pretrained` writes it, so that no
specification can name a path. A repository of the allowlist is read at its pinned commit.
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from worker.catalog.datasets import OWN_NAME
from worker.catalog.presets import PUBLISHED_WEIGHTS, PublishedWeights
from worker.errors import HubError, WeightsError
from worker.files import file_sha256

OWN_FOLDER: Final = "weights"
"""Beside the prepared datasets."""
CONFIG_FILE: Final = "config.json"
FILES: Final = (CONFIG_FILE, "*.safetensors", "model.safetensors.index.json")
"""All that is fetched: no pickles, no code."""
SAME_FIELDS: Final = (
    "model_type",
    "n_head",
    "num_attention_heads",
    "num_key_value_heads",
    "layer_norm_epsilon",
    "rms_norm_eps",
    "activation_function",
    "hidden_act",
    "tie_word_embeddings",
    "rope_theta",
)
"""The fields that no shape shows, and that make another model of the same weights."""
OTHER_NAMES: Final = {"gelu_new": "gelu_pytorch_tanh"}
"""The other names of one function: published GPT-2s call the tanh approximation of the GELU by the left one."""


@dataclass(frozen=True, kw_only=True)
class InitialWeights:
    """A folder of safetensors files."""

    name: str
    folder: Path
    sha256: str
    """Over the names and contents of the safetensors files."""


def find_weights(name: str, dataset_folder: Path) -> InitialWeights:
    """Return the weights of that name; raises `WeightsError` or `HubError` if they cannot be had."""
    if OWN_NAME.fullmatch(name):
        folder = own_weights_folder(name, dataset_folder)
        if not folder.is_dir():
            raise WeightsError(missing_weights_hint(name, dataset_folder))
    elif name in PUBLISHED_WEIGHTS:
        folder = _download_weights(PUBLISHED_WEIGHTS[name])
    else:
        names = ", ".join(PUBLISHED_WEIGHTS)
        raise WeightsError(f"the weights {name!r} are not allowed; allowed: {names}, own/<name>. Choose one of them.")
    return InitialWeights(name=name, folder=folder, sha256=_hash(folder))


def missing_weights_hint(name: str, dataset_folder: Path) -> str:
    """Return the remedy for missing own weights."""
    folder = own_weights_folder(name, dataset_folder)
    return (
        f"there are no weights {name!r}. Copy a folder that `save_pretrained` wrote to {folder}, or to storage with "
        f"`adapm-bench data push {OWN_FOLDER}/{folder.name}` on the machine that has it."
    )


def own_weights_folder(name: str, dataset_folder: Path) -> Path:
    """Return the folder of the weights `own/<name>`."""
    return dataset_folder / OWN_FOLDER / name.removeprefix("own/")


def _download_weights(published: PublishedWeights) -> Path:
    """Return the repository's folder in the hub's cache, downloaded where it is missing."""
    from huggingface_hub import snapshot_download  # for downloads alone: the service imports this module too

    try:
        return Path(snapshot_download(published.repository, revision=published.revision, allow_patterns=list(FILES)))
    except OSError as error:
        raise HubError(
            f"cannot fetch the weights {published.repository}: {type(error).__name__}: {str(error).rstrip('.')}. "
            "Check the network, `hf auth login` and HF_ENDPOINT; the next attempt goes on from what is there."
        ) from error


def _hash(folder: Path) -> str:
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise WeightsError(
            f"{folder} holds no safetensors file. Save the model again with `save_pretrained`; pickles are not read."
        )
    total = hashlib.sha256()
    for path in files:
        total.update(f"{path.name} {file_sha256(path)}\n".encode())
    return total.hexdigest()


def require_same_architecture(weights: InitialWeights, expected: dict[str, Any]) -> None:
    """Compare the configuration beside the weights with that of the model; raises `WeightsError` naming each field."""
    path = weights.folder / CONFIG_FILE
    try:
        config = _flatten(json.loads(path.read_text()))
    except (OSError, ValueError, AttributeError) as error:
        raise WeightsError(
            f"{path} cannot be read: {error}. Copy the whole folder that `save_pretrained` wrote."
        ) from error
    expected = _flatten(expected)
    different = [
        f"{name} is {config[name]!r}, the model's is {expected[name]!r}"
        for name in SAME_FIELDS
        if name in config and name in expected and config[name] != expected[name]
    ]
    if different:
        raise WeightsError(
            f"the weights {weights.name!r} are those of another model: {'; '.join(different)}. "
            "Choose their own model, or other weights."
        )


def _flatten(config: dict[str, Any]) -> dict[str, Any]:
    """Return a configuration with its rotation's base at the top, where earlier versions of transformers wrote it, and
    one name for each function."""
    rotation = config.get("rope_parameters") or {}
    flat = {**({"rope_theta": rotation["rope_theta"]} if "rope_theta" in rotation else {}), **config}
    return {name: OTHER_NAMES.get(value, value) if isinstance(value, str) else value for name, value in flat.items()}
