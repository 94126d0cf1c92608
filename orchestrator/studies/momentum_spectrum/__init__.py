"""How concentrated momenta are, by role."""
