"""What users and pages can ask, each noun a service, made by `composition.py`. Workers ask `store/queue/attempts.py`."""
