"""What looks at every request and answer: guards, classes of calls, audit, tags, compression, metrics."""
