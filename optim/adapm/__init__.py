"""AdaPM and AdaPM-mini: the optimizer, its step and what the step is made of. No other optimizer, and no model, lives
here: which blocks a model has is `optim/plan`'s business.
"""

from .adapm import AdaPM as AdaPM
from .adapm import AdaPMMini as AdaPMMini
