"""Verbs on experiments and runs: submit, follow, read, change, search."""
