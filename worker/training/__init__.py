"""The training loop and what it holds: step, schedule, checkpoints, memory, device, random state."""
