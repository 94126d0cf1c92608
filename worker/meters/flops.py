"""Model FLOPs of a training, and the share of the device's peak that they are: model FLOPs utilisation, MFU.

PaLM's definition (Chowdhery et al. 2022, arXiv 2204.02311, appendix B): a forward and a backward pass need

    6 N + 12 L H Q T   FLOPs a token

with N weights that multiply, L layers of H heads of dimension Q, and T tokens a sequence. Causality is not deducted and
nothing recomputed is added. Embedding look-ups multiply nothing; a tied embedding does as the head. Of the 6, 2 are the
forward pass, 2 the gradient of a map's input, and 2 that of its weight, which a frozen weight saves. Of a layer's
experts those count that a token is sent to; routers, some thousandths, are left out.
"""

from typing import Final

from torch import nn

from optim.plan.modules import expert_stacks, linear_map
from worker.models import is_pretrained
from worker.spec.run import Precision

PEAK_TERAFLOPS: Final[tuple[tuple[str, float, float], ...]] = (
    ("H200 NVL", 835.5, 60.0),
    ("H200", 989.5, 67.0),
    ("H100 NVL", 835.5, 60.0),
    ("H100 PCIe", 756.5, 51.0),
    ("H100", 989.5, 67.0),
    ("A100", 312.0, 19.5),
    ("A40", 149.7, 37.4),
    ("A30", 165.0, 10.3),
    ("A10", 125.0, 31.2),
    ("L40S", 362.05, 91.6),
    ("L40", 181.05, 90.5),
    ("L4", 121.0, 30.3),
)
"""Words of CUDA's name of the device, then the dense peaks for bf16 (tensor cores) and fp32 (without TF32, which the
bench leaves off), in 1e12 FLOP/s, by NVIDIA's data sheets of these names: H200 (SXM and NVL), H100 (SXM, PCIe and NVL:
1,979, 1,513 and 1,671 with sparsity), A100 (PCIe and SXM alike), A40, A30, A10, L40S and L40 (both figures printed), L4
(242 with sparsity). Where a sheet prints a figure with sparsity only, it is halved: sparsity doubles what is counted
and is never used here. The A10G and the A800 are other chips."""


def flops_per_token(model: nn.Module, sequence_length_tokens: int) -> float | None:
    """Return the model FLOPs of training on one token; None if the model is no Transformer of the Hugging Face
    library."""
    if not is_pretrained(model):
        return None
    weights = [module.get_parameter("weight") for module in model.modules() if linear_map(module) is not None]
    multiplied = sum((6 if weight.requires_grad else 4) * weight.numel() for weight in weights)
    config = model.config
    for module in model.modules():
        for stack in expert_stacks(module) or ():
            share = int(config.num_experts_per_tok) / stack.shape[0]
            multiplied += round(share * (6 if stack.requires_grad else 4) * stack.numel())
    heads = int(config.num_attention_heads)
    head_size = int(getattr(config, "head_dim", None) or config.hidden_size // heads)
    return float(multiplied + 12 * int(config.num_hidden_layers) * heads * head_size * sequence_length_tokens)


def peak_flops_per_second(device_name: str, precision: Precision) -> float | None:
    """Return the device's peak for matrix products; None for a part of a GPU (MIG) and for what the table does not
    know."""
    parts = device_name.replace("-", " ").split()
    if "MIG" in parts:
        return None
    for name, bf16, fp32 in PEAK_TERAFLOPS:
        if set(name.split()) <= set(parts):
            return 1e12 * (bf16 if precision == "bf16" else fp32)
    return None
