"""Probes: what a training's gradients and momenta look like, block by block. Off unless the workload asks for them."""
