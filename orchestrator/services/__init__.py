"""What users and pages can ask, each noun a service, made by `composition.py`. Workers: `store/queue/attempts.py`."""
