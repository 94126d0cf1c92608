"""The stationarity of residuals, by role."""
