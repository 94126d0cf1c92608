"""How stationary residuals are, by role."""
