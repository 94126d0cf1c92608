"""Table 2's optimizer states, counted."""
