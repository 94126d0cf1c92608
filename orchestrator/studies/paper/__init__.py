"""The studies of the paper's claims; each module with a `STUDY` is one."""
