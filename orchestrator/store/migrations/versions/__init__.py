"""One file a revision, in order: what it changes of a database that is there; a released one is never edited.

A new database has no history: its tables are made as `tables.py` has them.
"""
