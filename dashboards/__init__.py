"""Pages and figures: what the orchestrator's service knows, drawn for people."""
