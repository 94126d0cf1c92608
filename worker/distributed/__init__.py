"""A run on several devices: its process group, and what its ranks tell each other. One rank alone is the same code."""
