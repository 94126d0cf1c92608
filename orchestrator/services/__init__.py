"""What users and pages can ask, each noun a service; `composition.py` makes them. Workers ask `store/queue/attempts.py`."""
