"""Bundles: a finished experiment as a signed folder that anybody can check, without the service that made it.

What is trained, queued or drawn is not here: figures and sentences come from `orchestrator`, as everywhere.
"""
