"""What users and pages can ask, each noun a service, made by `composition.py`. For workers: `store/queue/attempts.py`."""
