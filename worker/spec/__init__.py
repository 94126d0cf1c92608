"""Specifications of runs: what to train, on what, for how long. Torch-free; `worker/training` trains them."""
