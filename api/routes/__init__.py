"""The routes of `/v1`, one noun a file."""
