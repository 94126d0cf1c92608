"""Scaling laws: the model, its fit to experiments of several sizes, and what may be said of it. Pure functions."""
