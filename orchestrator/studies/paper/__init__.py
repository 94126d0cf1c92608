"""The studies of the paper's claims: every `Study` in a module is one."""
