"""Figures: records and series in, Plotly figures as plain dicts out. Those of an experiment read through its view."""
