"""How hyperparameters are tuned: one interface, and a module for each method. Pure functions of what was tried."""
