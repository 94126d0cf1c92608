"""Figures: records and series in, Plotly figures as plain dicts out. Pure but for `experiment.py`, which reads."""
