"""Meters: memory and time, each quantity under its own name and never an error where it does not exist."""
