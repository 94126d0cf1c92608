"""The service: verbs of users and pages by noun, made by `composition.py`. Workers: `store/queue/attempts.py`."""
