"""Verbs that bring runs in and experiments out as files: spools, imports, exports, signed folders and boards."""
