"""Verbs that run whole studies, and the demo."""
