"""Verbs of whoever keeps a service: start, its processes, settings, database, keys, health."""
