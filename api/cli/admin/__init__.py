"""Verbs of whoever keeps a service: start, settings, database, keys, health."""
