"""A run on several devices: its process group, and what its ranks exchange. One rank alone is the same code."""
