"""What the product shows, frozen and compared: `python -m tests.witnesses --help`."""
