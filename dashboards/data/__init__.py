"""What pages read: the service's answers, assembled once per version of an experiment."""
