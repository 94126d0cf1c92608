"""Theorem 2 as a numerical experiment."""
