"""Answers: records in, comparisons and verdicts out. Pure functions; nothing here reads a store."""
