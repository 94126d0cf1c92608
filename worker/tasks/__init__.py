"""Tasks: what a training computes at a step. The loop in `worker/training/loop.py` is the same for all."""
