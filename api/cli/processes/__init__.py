"""The processes of the service, which the supervisor starts: each loads what it needs and nothing else."""
