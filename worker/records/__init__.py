"""What a run says of itself, and the words that a worker and the service exchange. Torch-free records, no behaviour."""
