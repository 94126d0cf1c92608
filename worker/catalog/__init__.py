"""What specifications may name, as data: models and datasets. No torch, no numpy; optimizers are in `optim/catalog`."""
