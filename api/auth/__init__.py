"""Callers and their rights: keys, scopes, throttle. The records of keys are the orchestrator's."""
