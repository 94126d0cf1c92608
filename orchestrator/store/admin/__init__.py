"""Keeping a database and its callers: maintenance, metrics, quotas, keys, the audit log, deletion."""
