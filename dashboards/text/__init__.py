"""Numbers and records in words, as pages, reports and the command line show them. Pure."""
