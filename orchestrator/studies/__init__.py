"""Studies: named, shipped experiments that answer one question each, as data."""
