"""Records of a run, and the messages between a worker and the service. Torch-free records, no behaviour."""
