"""The durable queue: how runs are submitted, claimed, leased, ended and followed by others. Every change of a run's
state goes through `transitions.py`."""
