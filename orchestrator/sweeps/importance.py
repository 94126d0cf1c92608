"""Which hyperparameters mattered: Optuna's PED-ANOVA over the trials of one candidate.

PED-ANOVA (Watanabe, Bansal, Hutter: "PED-ANOVA: Efficiently Quantifying Hyperparameter Importance in Arbitrary
Subspaces", IJCAI 2023) compares where the best trials lie with where all of them lie. It needs no forest to be fitted,
and so no scikit-learn. Optuna takes time to import: functions import it, so that only who asks for an importance
pays for it, and no page waits for it (`is_loaded`).
"""

import warnings
from collections.abc import Mapping, Sequence
from functools import cache
from threading import Event, Thread
from typing import TYPE_CHECKING

from optim.catalog.records import Scalar
from orchestrator.kinds.sweep import SearchedCandidate
from orchestrator.tuning.search_spaces import Choice, Integer, LogUniform, Range

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

FEWEST_TRIALS = 8
"""PED-ANOVA looks at the best tenth; below this that tenth is not even one of the trials."""


def is_loaded() -> bool:
    """Whether importances can be had at once. Where Optuna is not there, it is on its way after this call, on a thread
    of its own: not from the start of the process, for most never look at a sweep."""
    return _start_loading().is_set()


@cache
def _start_loading() -> Event:
    loaded = Event()

    def load() -> None:
        try:
            import optuna  # noqa: F401 - loaded for those who use it later
        finally:
            loaded.set()  # also where it failed: the next request then meets the fault itself, and tells of it

    Thread(target=load, name="importance", daemon=True).start()
    return loaded


def distribution(domain: Range) -> "BaseDistribution":
    """The domain as Optuna knows it."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution  # loads Optuna

    if isinstance(domain, Choice):
        return CategoricalDistribution(domain.values)
    if isinstance(domain, Integer):
        return IntDistribution(domain.low, domain.high, log=domain.log)
    return FloatDistribution(domain.low, domain.high, log=isinstance(domain, LogUniform))


def distributions(candidate: SearchedCandidate) -> dict[str, "BaseDistribution"]:
    """A candidate's space as Optuna knows it."""
    return {name: distribution(domain) for name, domain in candidate.ranges().items()}


def importances(candidate: SearchedCandidate, trials: Sequence[tuple[Mapping[str, Scalar], float]]) -> dict[str, float]:
    """Hyperparameter → share, the most important first; empty where too few trials say anything.

    `trials`: hyperparameters with the loss. One that was stopped early, or diverged, counts with a loss that is worse
    than those of all trials that ran the whole budget: that it was not among the best is what is known of it.
    """
    if len(trials) < FEWEST_TRIALS or len({loss for _, loss in trials}) < 2:
        return {}
    import optuna  # as above

    space = distributions(candidate)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study()
    for parameters, loss in trials:
        study.add_trial(optuna.trial.create_trial(params=dict(parameters), distributions=space, value=loss))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the evaluator is experimental is for its callers to know, not our users
        evaluator = optuna.importance.PedAnovaImportanceEvaluator()
        found = optuna.importance.get_param_importances(study, evaluator=evaluator)
    total = sum(found.values())
    return {name: share / total for name, share in found.items()} if total > 0 else {}
