"""Options that several optimizers share, with the paper's defaults."""

from optim.entries import Option

BETA1 = Option(
    name="beta1",
    kind="float",
    default=0.9,  # paper, section 5.1
    meaning="decay rate of the momentum",
    minimum=0.0,
    maximum=1.0,
    exclusive_maximum=True,
)
BETA2 = Option(
    name="beta2",
    kind="float",
    default=0.95,  # paper, section 5.1
    meaning="decay rate of the second moment",
    minimum=0.0,
    maximum=1.0,
    exclusive_maximum=True,
)
EPS = Option(
    name="eps",
    kind="float",
    default=1e-8,  # paper, section 5.1
    meaning="added to the root of the second moment",
    minimum=0.0,
)
WEIGHT_DECAY = Option(
    name="weight_decay",
    kind="float",
    default=0.1,  # paper, section 5.1
    meaning="decoupled decay of matrices; vectors never decay",
    minimum=0.0,
)
