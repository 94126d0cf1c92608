"""The catalog entry of somebody's optimizer, as docs/own-optimizer.md shows it; it imports no torch."""

from optim.catalog import Claim, OptimizerEntry, Option

SIGNUM = OptimizerEntry(
    name="signum",
    title="Signum",
    factory="signum_optimizer:signum",
    learning_rate=1e-4,
    options=(
        Option(
            name="beta",
            kind="float",
            default=0.9,
            meaning="decay rate of the momentum",
            minimum=0.0,
            maximum=1.0,
            exclusive_maximum=True,
        ),
        Option(name="weight_decay", kind="float", default=0.1, meaning="decay of matrices", minimum=0.0),
    ),
    summary="The sign of the momentum.",
    paper="Bernstein et al.: signSGD, Compressed Optimisation for Non-Convex Problems, arXiv 1802.04434",
    licence="Apache-2.0",
    claims=frozenset({Claim.STEADY, Claim.SCALE_FREE, Claim.FRESH_START}),
)

SLOPPY = OptimizerEntry(
    name="sloppy",
    title="Sloppy",
    factory="signum_optimizer:sloppy",
    learning_rate=1e-4,
    options=SIGNUM.options,
    summary="Signum that forgets its momentum when it is saved, and decays everything.",
    paper="none",
    licence="Apache-2.0",
)

MISNAMED = SIGNUM
