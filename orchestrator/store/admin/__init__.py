"""Keeping a database and its callers: maintenance, metrics, limits, quotas, keys, the audit log, deletion."""
