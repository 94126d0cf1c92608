"""Optimizers: AdaPM, AdaPM-mini and the baselines, usable in anybody's training loop."""
