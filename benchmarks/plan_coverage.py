"""The models of the installed libraries that the block plan places without a remainder, as a table for `docs/roles.md`:

python -m benchmarks.plan_coverage

Models are built on `meta` from default configurations, of at most four layers. timm and torchvision count where they
are installed; what a library cannot build from its defaults is left out.
"""

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import Any, Final

import torch
from torch import nn

from optim.plan import BlockKind, plan_blocks

LAYERS: Final = 4
TIMM: Final = (
    *("resnet18", "resnet50", "convnext_tiny", "efficientnet_b0", "mobilenetv3_large_100", "regnety_004"),
    *("vit_base_patch16_224", "deit_small_patch16_224", "swin_tiny_patch4_window7_224", "swinv2_tiny_window8_256"),
    *("beit_base_patch16_224", "eva02_tiny_patch14_224", "mixer_b16_224", "maxvit_tiny_tf_224", "coatnet_0_rw_224"),
    *("cait_xxs24_224", "caformer_s18", "densenet121", "pvt_v2_b0", "levit_128"),
)
TORCHVISION: Final = ("resnet18", "vit_b_16", "swin_t", "convnext_tiny", "efficientnet_b0", "maxvit_t", "vgg11")


def shrink(config: Any) -> Any:  # configurations of transformers have no common type
    """Return that configuration with few layers, its text and image models too, as far as it can be changed."""
    for part in (config, getattr(config, "text_config", None), getattr(config, "vision_config", None)):
        for name in ("num_hidden_layers", "n_layer", "n_layers", "num_layers"):
            with suppress(Exception):
                if getattr(part, name) > LAYERS:
                    setattr(part, name, LAYERS)
        for name in ("layer_types", "mlp_layer_types", "layers_block_type"):
            with suppress(Exception):
                setattr(part, name, getattr(part, name)[:LAYERS])
    return config


def outline(model_type: str, head: str = "AutoModelForCausalLM") -> nn.Module:
    """A small model of that type of transformers on `meta`."""
    auto = import_module("transformers")
    with torch.device("meta"):
        model: nn.Module = getattr(auto, head).from_config(shrink(auto.AutoConfig.for_model(model_type)))
    return model


def vision(library: str, name: str) -> nn.Module:
    """A model of timm or torchvision on `meta`."""
    with torch.device("meta"):
        model: nn.Module = (
            import_module("timm").create_model(name)
            if library == "timm"
            else getattr(import_module("torchvision.models"), name)()
        )
    return model


def families() -> Iterator[tuple[str, dict[str, Callable[[], nn.Module]]]]:
    """(heading, how each model is built)."""
    mappings = import_module("transformers.models.auto.modeling_auto")
    for heading, mapping, head in (
        ("transformers, causal", "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES", "AutoModelForCausalLM"),
        ("transformers, masked", "MODEL_FOR_MASKED_LM_MAPPING_NAMES", "AutoModelForMaskedLM"),
        ("transformers, sequence to sequence", "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES", "AutoModelForSeq2SeqLM"),
        (
            "transformers, images",
            "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES",
            "AutoModelForImageClassification",
        ),
    ):
        yield heading, {kind: partial(outline, kind, head) for kind in getattr(mappings, mapping)}
    yield "timm", {name: partial(vision, "timm", name) for name in TIMM}
    yield "torchvision", {name: partial(vision, "torchvision", name) for name in TORCHVISION}


def main() -> None:
    """Print the table."""
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    print("| models | built | placed whole | not placed |\n|---|--:|--:|---|")
    for heading, makers in families():
        unplaced: dict[str, int] = {}
        for name, make in makers.items():
            try:
                model = make()
            except Exception:  # noqa: BLE001  # a library may refuse its own defaults by any error
                continue
            unplaced[name] = sum(block.kind is BlockKind.OTHER for block in plan_blocks(model, unknown="full"))
        partly = ", ".join(f"`{name}`: {count}" for name, count in sorted(unplaced.items()) if count)
        print(f"| {heading} | {len(unplaced)} | {sum(not count for count in unplaced.values())} | {partly} |")


if __name__ == "__main__":
    main()
