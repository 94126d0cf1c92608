"""The durable queue: claims, leases, how attempts end. Every change of a run's state goes through `transitions.py`."""
