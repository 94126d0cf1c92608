"""The store: SQL tables and the queue, series and results that live in them. SQL is the truth of the whole service."""
