"""Campaigns: many tries at improving on a baseline, with one error for all. Comparisons know nothing of them."""
