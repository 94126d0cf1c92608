"""Verbs on what is claimed: studies, claims as files, campaigns of tries."""
