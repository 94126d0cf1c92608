"""The former path of `optim.train_eval_weights`, which other people's code imports."""

from .train_eval_weights import HasModes as HasModes
from .train_eval_weights import result_weights as result_weights
