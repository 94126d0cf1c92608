"""Retention of checkpoints, here and in a remote folder, and removal of deleted experiments."""
