"""Figures: records and series in, Plotly figures as plain dicts out. Pure, so that pages, files and reports share
them."""
