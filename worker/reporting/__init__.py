"""How a training tells the world: the reporter, its delivery over HTTP, logs and traces. Nothing here trains."""
