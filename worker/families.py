"""The classes of transformers that presets are made of.

Apart from `models.py`: the tests of `optim/` make their models with Python 3.10 too, which the bench does not take.
"""

import sys
from importlib import import_module
from typing import Any, Final

from optim.absent import absent
from worker.catalog.presets import Family

CLASSES: Final[dict[Family, tuple[str, str]]] = {
    "gpt2": ("GPT2Config", "GPT2LMHeadModel"),
    "llama": ("LlamaConfig", "LlamaForCausalLM"),
    "mixtral": ("MixtralConfig", "MixtralForCausalLM"),
}
"""The classes of transformers: a family's configuration and model."""


def load_transformers() -> None:
    """Import what all of the models are built on; a task that trains none of them starts without these seconds.

    Two packages are as if they were not installed meanwhile: torchao, which transformers loads for quantised
    checkpoints (it takes time, and warns of kernels for other devices on every training's output; optimizers that need
    it import it themselves), and scipy, for the losses of object detection. What has loaded a
    part of transformers before may have asked for scipy already, and it keeps the answer.
    """
    with absent("torchao", *(() if "transformers" in sys.modules else ("scipy",))):
        import_module("transformers.modeling_utils")


def family_classes(family: Family) -> tuple[Any, Any]:
    """Return the classes of a family's configuration and of its model. Only its own modules are imported: transformers
    takes about a second for a modelling file."""
    load_transformers()
    config, model = CLASSES[family]
    package = f"transformers.models.{family}"
    return (
        getattr(import_module(f"{package}.configuration_{family}"), config),
        getattr(import_module(f"{package}.modeling_{family}"), model),
    )
