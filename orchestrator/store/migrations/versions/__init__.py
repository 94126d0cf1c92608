"""Revisions of the database, one file each, in order; a released one is never edited.

A new database has no history: its tables are made as `tables.py` has them.
"""
