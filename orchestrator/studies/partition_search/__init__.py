"""Main effects of what blocks keep."""
