"""How a model is run: attention, activation checkpointing, compilation. None of it changes what is computed."""

import sys

import torch

from worker.pretrained_model import PreTrainedModel
from worker.spec import Execution


def prepare(model: PreTrainedModel, execution: Execution) -> None:
    """Make the model compute as the execution says; call it once, with the model on its device.

    * attention: transformers' own switch; every preset has both ways.
    * activation checkpointing: a layer's input is kept, the rest computed again in the backward pass.
    * compile: `torch.compile` of the forward pass and, with it, of the backward pass. It compiles anew for each shape.
    """
    model.set_attn_implementation(execution.attention)
    if execution.activation_checkpointing:
        model.activation_checkpointing_enable({"use_reentrant": False})
    if execution.compile:
        model.compile()


def forget_compiled() -> None:
    """Let `torch.compile` begin anew; nothing where it was never used, since its import alone takes seconds."""
    if "torch._dynamo" in sys.modules:
        torch.compiler.reset()


def is_compiler_fault(error: BaseException) -> bool:
    """Whether `torch.compile` could not compile the model here."""
    return "torch._dynamo" in sys.modules and isinstance(error, torch._dynamo.exc.TorchDynamoException)
