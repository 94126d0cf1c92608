"""Runs that other tools have logged: a reader for each of their formats, a mapping onto ours, and the way in.

files or addresses ─► a reader of `readers.py` ─► runs as the source has them (`source.py`), on disk
    ─► the mapping, proposed and corrected (`mapping.py`): sessions become one run (`orchestrator/sessions.py`), which
    is looked through (`mapping.py`) ─► what the service does not have yet (`transfer.py`), as lines of a spool

Nothing here trains, and nothing asks a service of somebody else's but MLflow's.
"""
