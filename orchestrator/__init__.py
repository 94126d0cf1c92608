"""The orchestrator: queues experiments durably, runs them on Ray, keeps, compares and exports their results."""
