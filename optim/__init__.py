"""Optimizers: AdaPM, AdaPM-mini and the baselines, usable in anybody's training loop. They stand on torch alone.

    from optim.adapm import AdaPM, AdaPMMini        the optimizers of the paper
    from optim.build import build                   any optimizer of the catalog, by name
    from optim.catalog import entry, names          what there is, with options and bounds; imports no torch
    from optim.plan import Rule, plan_blocks        which block of a model keeps what
    from optim.state import state_bytes             what an optimizer keeps, to the byte

Layers, each of which knows only those below: build · catalog (its factories) · baselines · adapm · plan.
"""
