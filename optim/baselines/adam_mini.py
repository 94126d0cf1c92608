"""Adam-mini: AdamW with one second moment for the weights of each Hessian block (Zhang et al., "Adam-mini:
Use Fewer Learning Rates To Gain More", arXiv 2406.16793, second version of its partition).

    m = b1 m + (1 - b1) G
    v = b2 v + (1 - b2) mean(G * G)       over a head of query and key, an output neuron of value, attention output and
                                          MLP, a row of an embedding or LM head; vectors keep Adam's
    W = W - lr ( (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps) + weight_decay W )

That is AdaPM-mini with full momentum everywhere, no clipping and Adam's 1 - b^t terms, so it is built so. The block
plan finds heads in fused and grouped projections, where the published package goes by substrings of names.
"""

from typing import Any

from torch import Tensor
from torch.optim.optimizer import ParamsT

from ..adapm import AdaPMMini
from ..plan.blocks import BlockKind, FirstMoment


class AdamMini(AdaPMMini):
    """AdamW's momentum with Adam-mini's second moment: 4.0 bytes per parameter. Options are `AdaPM`'s."""

    first_moments = dict.fromkeys(BlockKind, FirstMoment.FULL)

    def __init__(self, params: ParamsT, lr: float | Tensor, **options: Any) -> None:
        super().__init__(params, lr, **{"debias_moments": True, **options})
