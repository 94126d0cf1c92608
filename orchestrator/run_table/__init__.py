"""The table of all runs, as one asks for it: its fields and the language of its filters. No SQL, no pages."""
