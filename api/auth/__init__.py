"""Who calls, and what a caller may: keys, scopes, throttle. The records of keys are the orchestrator's."""
