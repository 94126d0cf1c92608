"""Tasks: what a training computes at a step. The loop in `worker/training.py` is the same for all."""
