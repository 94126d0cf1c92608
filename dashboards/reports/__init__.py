"""Documents: an experiment's report, tables for papers, BibTeX, the reproduction report."""
