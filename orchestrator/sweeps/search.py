"""From the store to Ray Tune: a sweep's trials, and back: its decisions.

    Tune asks for a trial ─► StoreSearch: one that the store has, else the next number ─► added to the store ─► Tune
    Tune's scheduler says STOP ─► AshaPerCandidate ─► the run is asked to finish with what there is

A driver that is started again reports every trial to Tune once more, in the order of their numbers: ended ones report
at once, so the searcher and the scheduler know what they knew, and nothing is trained twice.
"""

import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import optuna
from ray.tune.experiment import Trial
from ray.tune.schedulers import AsyncHyperBandScheduler, FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher
from ray.tune.search.optuna import OptunaSearch

from orchestrator.errors import OrchestratorError
from orchestrator.kinds.sweep import SweepSpec
from orchestrator.sweeps.importance import distributions
from orchestrator.sweeps.trial_follower import FAULTLESS, LOSS, STEP
from orchestrator.sweeps.trials import Parameters, planned_parameters

REDUCTION_FACTOR = 3
"""The reduction factor: of the trials that reach a rung, one in so many goes on; Hyperband's usual one (Li et al.,
arXiv 1603.06560)."""
BRACKETS = 3
"""Ray Tune's own number would be 1, which is ASHA; successions with later first rungs spare slow starters."""
Add = Callable[[int, Parameters], tuple[str, Parameters] | None]
"""Queue the trial of that number, or find it: the run's id and the hyperparameters that it has; None to end."""


class OvertakenError(OrchestratorError):
    """Another driver has added this trial with other hyperparameters; start again from what the store has."""


class StoreSearch(Searcher):  # type: ignore[misc] # Ray publishes no types
    """Tune's search algorithm: numbers the trials, asks chance, a grid or TPE for them, and keeps them in the store."""

    def __init__(self, spec: SweepSpec, trials: Mapping[int, Parameters], add: Add) -> None:
        """`trials`: those that the store has already."""
        super().__init__(metric=LOSS, mode="min")
        self._spec, self._known, self._add = spec, trials, add
        self._next = 0
        self._candidates: dict[str, int] = {}
        """Tune's trial → the candidate's place."""
        has_tpe = spec.algorithm in ("tpe", "tpe-hyperband")
        self._inner = {index: _tpe(spec, index, trials) for index in range(len(spec.candidates)) if has_tpe}

    def suggest(self, trial_id: str) -> Parameters | str | None:
        """Return the next trial's configuration: its run's id, and its number."""
        number = self._next
        if number >= self._spec.run_count():
            return str(Searcher.FINISHED)
        index = number % len(self._spec.candidates)
        if self._inner:
            wanted = self._inner[index].suggest(trial_id)
        else:
            wanted = self._known.get(number) or planned_parameters(self._spec, number)
        assert isinstance(wanted, dict)
        added = self._add(number, wanted)
        if added is None:
            return str(Searcher.FINISHED)
        run_id, parameters = added
        if parameters != wanted:
            raise OvertakenError
        self._next += 1
        self._candidates[trial_id] = index
        return {"run": run_id, "number": number, "candidate": index}

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """Pass it on to TPE."""
        if self._inner and result.get(FAULTLESS, True):
            self._inner[self._candidates[trial_id]].on_trial_result(trial_id, result)

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Pass it on to TPE; a trial that failed or was cancelled says nothing of its hyperparameters."""
        if self._inner:
            silent = error or result is None or not result.get(FAULTLESS, True)
            inner = self._inner[self._candidates[trial_id]]
            inner.on_trial_complete(trial_id, result=None if silent else result, error=silent)

    def __getstate__(self) -> dict[str, Any]:
        """Return an empty state: Tune writes its parts down to be restored, and this one is made anew from the
        store."""
        return {}

    def save(self, checkpoint_path: str) -> None:
        """Save nothing: the store has it all."""

    def restore(self, checkpoint_path: str) -> None:
        """Restore nothing: Tune is never restored, it hears the trials again."""


class AshaPerCandidate(FIFOScheduler):  # type: ignore[misc] # Ray publishes no types
    """ASHA for each candidate apart: an optimizer that is slow at first is not stopped by another one's pace."""

    def __init__(self, spec: SweepSpec, stop: Callable[[str], None]) -> None:
        """`stop` asks a run to finish with what there is."""
        super().__init__()
        self._spec, self._stop = spec, stop
        self._inner = [_asha(spec) for _ in spec.candidates]

    def __getstate__(self) -> dict[str, Any]:
        """Return nothing, as above."""
        return {}

    def set_search_properties(self, metric: str | None, mode: str | None, **spec: Any) -> bool:
        """Accept nothing: metric and mode are the inner schedulers' own."""
        return True

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        """Give it to its candidate's scheduler."""
        self._scheduler_of(trial).on_trial_add(tune_controller, trial)

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        """Stop the run where its candidate's scheduler stops the trial, unless it is done anyway."""
        decision = str(self._scheduler_of(trial).on_trial_result(tune_controller, trial, result))
        if decision == TrialScheduler.STOP and result[STEP] < self._spec.workload.budget.steps:
            self._stop(trial.config["run"])
        return decision

    def on_trial_complete(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> None:
        """Let its candidate's scheduler know."""
        self._scheduler_of(trial).on_trial_complete(tune_controller, trial, result)

    def on_trial_remove(self, tune_controller: Any, trial: Trial) -> None:
        """Let its candidate's scheduler know."""
        self._scheduler_of(trial).on_trial_remove(tune_controller, trial)

    def _scheduler_of(self, trial: Trial) -> AsyncHyperBandScheduler:
        return self._inner[trial.config["candidate"]]


def _tpe(spec: SweepSpec, index: int, trials: Mapping[int, Parameters]) -> OptunaSearch:
    """Return Optuna's TPE for one candidate, which first gives the trials that are there already."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    candidates = len(spec.candidates)
    first: Sequence[Parameters] = [trials[number] for number in sorted(trials) if number % candidates == index]
    if not first and (default := planned_parameters(spec, index)) is not None:
        first = [default]
    # Another seed after each restart: the sampler would otherwise draw its first points a second time.
    seed = zlib.crc32(f"{spec.seed}/{index}/{len(first)}".encode())
    sampler = optuna.samplers.TPESampler(seed=seed)
    space = distributions(spec.candidates[index])
    return OptunaSearch(space, metric=LOSS, mode="min", points_to_evaluate=list(first) or None, sampler=sampler)


def _asha(spec: SweepSpec) -> AsyncHyperBandScheduler:
    """Return ASHA; with several brackets, successions with later first rungs, it is asynchronous Hyperband."""
    steps = spec.workload.budget.steps
    return AsyncHyperBandScheduler(
        time_attr=STEP,
        metric=LOSS,
        mode="min",
        max_t=steps + 1,  # the run ends itself, with its result
        grace_period=min(spec.grace_steps(), steps),
        reduction_factor=REDUCTION_FACTOR,
        brackets=BRACKETS if spec.algorithm == "tpe-hyperband" else 1,
    )
