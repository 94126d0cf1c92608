"""Block plans of many architectures as readable tables, which `python -m tests.plans.write` writes."""
