"""Trials: what the numbered trials of a sweep are made of, and what they become in the store. Pure functions.

    number ─► candidate ─► hyperparameters (by chance, off the grid, or as TPE says) ─► one run   and back again

What chance gives is a function of (sweep's seed, number): a driver that was killed and comes back draws the same.
"""

from collections.abc import Iterator, Mapping
from itertools import islice, product
from random import Random

from optim import catalog
from optim.catalog.records import Scalar
from orchestrator.kinds.block_rules import is_rule, rules_of
from orchestrator.kinds.comparison import Candidate
from orchestrator.kinds.experiment import PlannedRun
from orchestrator.kinds.sweep import LR, WARMUP, SearchedCandidate, SweepSpec
from orchestrator.tuning.search_spaces import contains, draw, grid

Parameters = dict[str, Scalar]
"""Hyperparameter → value, in the order of the space."""
LOSS_IF_LOST = 1e9
"""The loss of a trial that has none, because it diverged or needed too much memory: worse than all others, and finite,
since Tune's schedulers interpolate between losses. It stands in no table."""


def planned_parameters(spec: SweepSpec, number: int) -> Parameters | None:
    """Return the hyperparameters of that trial where they do not depend on other trials; None if TPE has to say.

    The first trial of each candidate is the catalog's own defaults where the space has them: what is found can then
    not be worse than doing nothing, except by stopping early.
    """
    candidate = spec.candidate_of(number)
    index = number // len(spec.candidates)
    if spec.algorithm == "grid":
        return next(islice(grid_points(candidate), index, None))
    ranges, usual = candidate.ranges(), candidate.defaults(spec.workload)
    if index == 0 and ranges.keys() == usual.keys() and all(contains(ranges[name], usual[name]) for name in usual):
        return usual
    if spec.algorithm in ("tpe", "tpe-hyperband"):
        return None
    random = Random(f"{spec.seed}/{number}")  # noqa: S311 - a search, not a secret
    return {name: draw(domain, random) for name, domain in ranges.items()}


def grid_points(candidate: SearchedCandidate) -> Iterator[Parameters]:
    """Yield every point of the grid over a candidate's space, the last hyperparameter changing fastest."""
    ranges = candidate.ranges()
    return (dict(zip(ranges, values, strict=True)) for values in product(*map(grid, ranges.values())))


def trial_run(spec: SweepSpec, number: int, parameters: Mapping[str, Scalar]) -> PlannedRun:
    """Return the run of that trial at these hyperparameters."""
    searched = spec.candidate_of(number)
    candidate = as_candidate(searched, parameters)
    setting = {"lr": candidate.learning_rates[0]}
    return candidate.planned_run(spec.workload, spec.resources, seed=spec.seed, setting=setting)


def as_candidate(searched: SearchedCandidate, parameters: Mapping[str, Scalar]) -> Candidate:
    """Return a candidate of a comparison at these hyperparameters."""
    rate, warmup = parameters.get(LR, searched.lr), parameters.get(WARMUP)
    rate = catalog.entry(searched.optimizer).learning_rate if rate is None else rate
    assert isinstance(rate, int | float)  # spaces are checked at the border
    assert warmup is None or isinstance(warmup, int)
    options = {name: value for name, value in parameters.items() if name not in (LR, WARMUP) and not is_rule(name)}
    # In the order of the space, whatever order TPE tells them in: later rules win.
    stated = {name: parameters[name] for name in searched.ranges() if is_rule(name)}
    return Candidate.model_construct(  # the sweep says all: nothing is written out, or refused, a second time
        optimizer=searched.optimizer,
        learning_rates=(float(rate),),
        options=searched.options | options,
        schedule=searched.schedule,
        rules=(*searched.rules, *rules_of(stated)),
        warmup_steps=warmup,
        label=searched.label,
    )
