"""Theorem 1's exponents."""
