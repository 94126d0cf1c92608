"""Reports of a training: the reporter, its delivery over HTTP, logs and traces. Nothing here trains."""
