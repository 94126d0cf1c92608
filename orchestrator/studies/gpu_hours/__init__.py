"""Micro-batches and speed under a memory cap."""
