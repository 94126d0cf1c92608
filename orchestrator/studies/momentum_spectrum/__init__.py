"""The concentration of momenta, by role."""
