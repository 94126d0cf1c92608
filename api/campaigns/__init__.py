"""Campaigns: many tries at improving on a baseline, with one error for all claims. The service knows their labels."""
