"""Verbs of whoever keeps a service: start, settings, database, keys, webhooks, MLflow, health."""
