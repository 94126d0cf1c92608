"""Storage that machines without a common disk share: checkpoints, datasets and logs in a remote folder."""
