"""Names of specifications, as data: models and datasets. No torch, no numpy; optimizers are in `optim/catalog`."""
