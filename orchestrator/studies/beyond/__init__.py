"""Studies that the paper does not have; every `Study` in a module is one."""
