"""Which checkpoints stay, here and in a remote folder, and how deleted experiments go for good."""
