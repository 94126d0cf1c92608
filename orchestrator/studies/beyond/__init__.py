"""Studies that the paper does not have; each module with a `STUDY` is one."""
