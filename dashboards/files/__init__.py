"""Figures as files: SVG, PNG and PDF by matplotlib, HTML, CSV and JSON."""
