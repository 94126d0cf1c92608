"""`python -m worker.footprint_process MODEL OPTIONS`: a model's footprint as JSON on standard output.

Counting needs torch, which the api process must not load, so it asks a process of its own for each answer
(`orchestrator/footprints.py`). OPTIONS is a JSON object of optimizer options.
"""

import json
import sys
from logging import ERROR, getLogger

from worker.footprint import footprint


def main() -> None:
    """Count and print."""
    # Where torchao is installed, transformers imports it, and it warns of GPU kernels that this machine cannot load.
    for name in ("torchao", "torch.utils._pytree"):
        getLogger(name).setLevel(ERROR)
    model, options = sys.argv[1:]
    print(footprint(model, options=json.loads(options)).model_dump_json())


if __name__ == "__main__":
    main()
