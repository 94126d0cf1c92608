"""Datasets: where text comes from, how it becomes memory-mapped token shards, how batches are drawn."""
