"""The optimizers that AdaPM is compared with, one a file: ours, and adapters of other people's. The functions that
build them for a model are in `optim/catalog/factories.py`.
"""
