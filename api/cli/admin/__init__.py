"""Verbs for operators: start the service, its processes, its settings, database, keys and health."""
