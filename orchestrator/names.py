"""What names that people give may look like."""

PLAIN_TEXT = r"^[^\x00-\x1f\x7f-\x9f\s](?:[^\x00-\x1f\x7f-\x9f]*[^\x00-\x1f\x7f-\x9f\s])?$"
"""No control characters, no blank at either end: names are shown in terminals, and PostgreSQL refuses NUL."""
