"""The data of pages: the service's answers, assembled once per version of an experiment."""
