"""Tuning of hyperparameters: one interface, and a module for each method. Pure functions of what was tried."""
