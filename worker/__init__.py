"""The worker: one function that trains one run and reports what it measured."""
