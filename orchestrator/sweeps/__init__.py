"""Sweeps at work: search spaces, the driver's process with Ray Tune, trials and the report. Only this folder imports
Ray Tune."""
