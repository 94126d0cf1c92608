"""What pages read: the service's answers, put together once for each version of an experiment, and the state of a
view."""
