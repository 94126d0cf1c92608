"""Middleware of every request and answer: guards, keys, classes of calls, audit, HEAD, tags, compression, metrics."""
