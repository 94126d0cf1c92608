"""Memory that is known before training, counted over real models and optimizers in a process of its own."""
