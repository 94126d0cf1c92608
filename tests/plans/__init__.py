"""Block plans of a dozen architectures as readable tables, which `python -m tests.plans.write` writes."""
