"""The optimizers that AdaPM is compared with, one per file: ours, most of them rules in
the frame of `PerParameterOptimizer` (`per_parameter.py`), and adapters of other people's. The functions that
build them for a model are in `optim/catalog/factories.py`.
"""
