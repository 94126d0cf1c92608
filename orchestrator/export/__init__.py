"""Copies for other programs: MLflow, Parquet and CSV, one JSON document with its provenance."""
