"""How a model is run: attention, activation checkpointing, compilation. None of it changes what is computed."""

from transformers.modeling_utils import PreTrainedModel

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
