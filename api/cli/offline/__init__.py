"""Verbs that need no service: data, models, optimizers, memory."""
