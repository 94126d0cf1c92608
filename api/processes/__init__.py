"""The composition roots of the service's processes, the supervisor above them, and the data folder that they share."""
