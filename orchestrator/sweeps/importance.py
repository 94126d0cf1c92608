"""The importance of hyperparameters: Optuna's PED-ANOVA over the trials of one candidate.

PED-ANOVA (Watanabe, Bansal, Hutter: "PED-ANOVA: Efficiently Quantifying Hyperparameter Importance in Arbitrary
Subspaces", IJCAI 2023) compares where the best trials lie with where all of them lie. It needs no forest to be fitted,
and so no scikit-learn.
"""

import warnings
from collections.abc import Mapping, Sequence

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from optim.catalog.records import Scalar
from orchestrator.kinds.sweep import SearchedCandidate
from orchestrator.tuning.search_spaces import Choice, Integer, LogUniform, Range

FEWEST_TRIALS = 8
"""PED-ANOVA looks at the best tenth; below this that tenth is not even one of the trials."""


def distribution(domain: Range) -> BaseDistribution:
    """Return the domain as Optuna knows it."""
    if isinstance(domain, Choice):
        return CategoricalDistribution(domain.values)
    if isinstance(domain, Integer):
        return IntDistribution(domain.low, domain.high, log=domain.log)
    return FloatDistribution(domain.low, domain.high, log=isinstance(domain, LogUniform))


def distributions(candidate: SearchedCandidate) -> dict[str, BaseDistribution]:
    """Return a candidate's space as Optuna knows it."""
    return {name: distribution(domain) for name, domain in candidate.ranges().items()}


def importances(candidate: SearchedCandidate, trials: Sequence[tuple[Mapping[str, Scalar], float]]) -> dict[str, float]:
    """Return hyperparameter → share, the most important first; empty if too few trials say anything.

    `trials`: hyperparameters with the loss. One that was stopped early, or diverged, counts with a loss that is worse
    than those of all trials that ran the whole budget: that it was not among the best is what is known of it.
    """
    if len(trials) < FEWEST_TRIALS or len({loss for _, loss in trials}) < 2:
        return {}
    space = distributions(candidate)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study()
    for parameters, loss in trials:
        study.add_trial(optuna.trial.create_trial(params=dict(parameters), distributions=space, value=loss))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the evaluator is experimental is for its callers to know, not our users
        evaluator = optuna.importance.PedAnovaImportanceEvaluator()
        shares = optuna.importance.get_param_importances(study, evaluator=evaluator)
    total = sum(shares.values())
    return {name: share / total for name, share in shares.items()} if total > 0 else {}
