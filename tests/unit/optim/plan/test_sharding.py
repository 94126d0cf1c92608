"""Sharded parameters without a second process; `tests/integration/optim/test_distributed.py` has the others."""

import pytest

from optim.adapm import AdaPM
from optim.builder import build
from optim.errors import ShardedParametersError
from worker.checks.tiny_models import tiny_gpt2


def test_what_deepspeed_has_taken_apart_is_refused():
    """By the mark that DeepSpeed sets on a parameter whose numbers are elsewhere."""
    model = tiny_gpt2()
    parameter = model.get_parameter("transformer.ln_f.weight")
    parameter.ds_id = 7  # type: ignore[attr-defined]
    message = r"DeepSpeed ZeRO-3 has taken apart transformer\.ln_f\.weight \(32,\); keep them whole"
    with pytest.raises(ShardedParametersError, match=message):
        AdaPM.for_model(model, 1e-3)
    with pytest.raises(ShardedParametersError, match=rf"adamw goes by .*{message}"):
        build("adamw", model, lr=1e-3)
