"""`start_run` for who has a framework's loop: a callback of Hugging Face's Trainer, a logger of Lightning, a tracker of
Accelerate. Each module needs its framework, and nothing else of the bench imports it."""
