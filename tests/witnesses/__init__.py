"""The product's output, frozen and compared: `python -m tests.witnesses --help`."""
