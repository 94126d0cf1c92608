"""Trials in Tune: by number, those of the store first, each optimizer for itself. No Ray is started."""

from typing import Any

import pytest
from ray.tune.schedulers import TrialScheduler
from ray.tune.search import Searcher

from orchestrator.kinds.sweep import SweepSpec
from orchestrator.sweeps.search import AshaPerCandidate, OvertakenError, StoreSearch
from orchestrator.sweeps.trial_follower import FAULTLESS, LOSS, STEP
from orchestrator.sweeps.trials import Parameters, planned_parameters
from tests.factories.sweep import RATES, sweep_spec


class Shelf:
    """Trials by number, as the store would keep them."""

    def __init__(self, parameters_by_number: dict[int, Parameters] | None = None) -> None:
        self.trials = dict(parameters_by_number or {})
        self.open = True

    def add(self, number: int, wanted: Parameters) -> tuple[str, Parameters] | None:
        if number not in self.trials and not self.open:
            return None
        return f"run-{number}", self.trials.setdefault(number, wanted)


def search(spec: SweepSpec, shelf: Shelf) -> StoreSearch:
    return StoreSearch(spec, dict(shelf.trials), shelf.add)


def play(searcher: StoreSearch, count: int, first: int = 0) -> list[Any]:
    """Ask for trials and finish each: the loss is lowest at a rate of 0.01."""
    configs = []
    for number in range(first, first + count):
        config = searcher.suggest(f"t{number}")
        configs.append(config)
        if isinstance(config, dict):
            searcher.on_trial_complete(f"t{number}", {LOSS: 2.0 + number, STEP: 10, FAULTLESS: True})
    return configs


TPE = sweep_spec(algorithm="tpe", trials=6)


def test_trials_are_numbered_and_candidates_take_turns():
    shelf = Shelf()
    configs = play(search(sweep_spec(trials=2), shelf), 5)
    assert configs[:4] == [{"run": f"run-{n}", "number": n, "candidate": n % 2} for n in range(4)]
    assert configs[4] == Searcher.FINISHED
    assert shelf.trials == {number: planned_parameters(sweep_spec(trials=2), number) for number in range(4)}


@pytest.mark.parametrize("cut", [0, 1, 5, 12])
def test_a_search_that_was_cut_goes_on_with_what_the_store_has(cut: int):
    """Every number has one trial, and what was there before is told to TPE as it was."""
    shelf = Shelf()
    play(search(TPE, shelf), cut)
    earlier_trials = dict(shelf.trials)
    configs = play(search(TPE, shelf), 13)
    assert [config["number"] for config in configs[:12]] == list(range(12)) and configs[12] == Searcher.FINISHED
    assert {number: shelf.trials[number] for number in earlier_trials} == earlier_trials
    rates = [shelf.trials[number]["lr"] for number in range(0, 12, 2)]
    assert len(set(rates)) == 6, "a sampler that begins again must not draw the same points again"


def test_a_cancelled_sweep_ends_the_search():
    shelf = Shelf()
    shelf.open = False
    assert play(search(TPE, shelf), 1) == [Searcher.FINISHED]


def test_a_trial_of_another_driver_is_not_taken_for_ones_own():
    shelf = Shelf()
    searcher = search(TPE, shelf)
    shelf.trials[0] = {"lr": 0.09}
    with pytest.raises(OvertakenError):
        searcher.suggest("t0")


def test_trials_that_failed_teach_nothing():
    shelf = Shelf()
    searcher = search(TPE, shelf)
    searcher.suggest("t0")
    searcher.on_trial_result("t0", {LOSS: 1e9, STEP: 1, FAULTLESS: False, "training_iteration": 1})
    searcher.on_trial_complete("t0", {LOSS: 1e9, STEP: 1, FAULTLESS: False})
    assert isinstance(searcher.suggest("t1"), dict)


class Trial:
    """A trial, as Tune's schedulers see it."""

    def __init__(self, number: int, candidate: int) -> None:
        self.trial_id = f"t{number}"
        self.config = {"run": f"run-{number}", "number": number, "candidate": candidate}


def decide(scheduler: AshaPerCandidate, trial: Trial, step: int, loss: float) -> str:
    return scheduler.on_trial_result(None, trial, {STEP: step, LOSS: loss})


def test_asha_judges_each_optimizer_by_its_own_trials():
    """AdaPM's trials are all worse than AdamW's, and only the worse one of AdaPM's is stopped."""
    stopped: list[str] = []
    scheduler = AshaPerCandidate(sweep_spec(algorithm="asha", trials=4), stopped.append)
    trials = [Trial(number, number % 2) for number in range(4)]
    for trial in trials:
        scheduler.on_trial_add(None, trial)
    decisions = [decide(scheduler, trial, 2, loss) for trial, loss in zip(trials, (2.0, 5.0, 1.9, 5.5), strict=True)]
    assert decisions == [TrialScheduler.CONTINUE] * 3 + [TrialScheduler.STOP]
    assert stopped == ["run-3"]


def test_a_run_at_its_last_step_is_not_asked_to_stop():
    stopped: list[str] = []
    spec = sweep_spec(algorithm="asha", candidates=[{"optimizer": "adamw", "space": {"lr": RATES}}])
    scheduler = AshaPerCandidate(spec, stopped.append)
    good, bad = Trial(0, 0), Trial(1, 0)
    for trial in (good, bad):
        scheduler.on_trial_add(None, trial)
    decide(scheduler, good, 10, 2.0)
    assert decide(scheduler, bad, 10, 3.0) == TrialScheduler.STOP
    assert stopped == []
