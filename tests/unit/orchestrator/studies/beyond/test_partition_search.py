"""The search for a partition: planted effects come back, and the verdict says what they are."""

import random
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from orchestrator.kinds.sweep import SweepSpec
from orchestrator.kinds.trials import planned_parameters, trial_run
from orchestrator.studies.beyond.partition_search import ROLES, STUDY, WHOLE_PLAN, Effects, SearchTrial, main_effects
from orchestrator.studies.evidence import Evidence, PartEvidence, RunOutcome, StudyScale
from orchestrator.studies.findings import ClaimVerdict
from orchestrator.studies.gathering import EvidenceSource, gather
from orchestrator.sweeps.report import report
from tests.factories.comparison import run_record
from tests.factories.evidence import DIVERGED
from tests.factories.sweep import sweep_record
from worker.records.result import Verdict

COSTS = {"query": {"none": 0.2, "low-rank": 0.002}, "value": {"none": 0.5, "low-rank": 0.1}, "router": {"none": 0.3}}


def planted(values: dict[str, str], noise: float = 0.0) -> float:
    """A loss to which every role adds what it costs."""
    return 2.5 + sum(COSTS.get(role, {}).get(kept, 0.0) for role, kept in values.items()) + noise


def made(loss: Callable[[dict[str, str], random.Random], float | None]) -> Evidence:
    """Evidence of all trials of the study's own sweeps; None diverged."""
    parts = []
    for part in STUDY.plans[StudyScale.TINY].parts:
        spec, chance = part.spec, random.Random(part.name)
        assert isinstance(spec, SweepSpec)
        runs = []
        for number in range(spec.trial_count()):
            parameters = planned_parameters(spec, number)
            assert parameters is not None
            found = loss({role.name: role.keeps(parameters[role.hyperparameter()]) for role in ROLES}, chance)
            ended = Verdict.DIVERGED if found is None else Verdict.CONVERGED
            runs.append(
                RunOutcome(
                    candidate="adapm",
                    lr=float(str(parameters["lr"])),
                    seed=spec.seed,
                    ended=ended,
                    loss=found,
                    hyperparameters=parameters,
                )
            )
        parts.append(PartEvidence(name=part.name, spec_hash="", complete=True, candidates=(), runs=tuple(runs)))
    return Evidence(study=STUDY.name, scale=StudyScale.TINY, parts=tuple(parts))


def test_what_every_role_costs_is_found_and_the_plan_with_it() -> None:
    """AdaPM's plan holds where query is cheap at low rank, value and router are dear, and all else is free."""
    found = STUDY.judge(made(lambda values, chance: planted(values, chance.gauss(0, 0.005))))
    measures = {each.name: each for each in found.measures}
    assert found.measured is ClaimVerdict.HOLDS
    assert measures["value: low rank"].value == pytest.approx(0.1, abs=0.01)
    assert measures["query: none"].value == pytest.approx(0.2, abs=0.01)
    assert "none for embedding, key, attention output, experts, output head" in found.sentence
    assert "low rank for query; full for value, router (other than AdaPM's plan for key, experts)" in found.sentence
    assert "--rule '*.k_proj.weight=none' --rule '*.experts.*=none'" in found.notes[-1]
    for name, truth in ((WHOLE_PLAN, 0.002), ("the plan found − AdaPM's, by the other half", 0.0)):
        total = measures[name]
        assert total.low is not None and total.high is not None and total.low < truth < total.high


def _only_noise(noise: Callable[[float, float], float], values: dict[str, str], chance: random.Random) -> float:
    return 2.5 + noise(0, 0.005)


def test_where_nothing_has_an_effect_the_plan_found_is_as_good_as_adapms() -> None:
    """Judged by the trials that found it, the best of many plans looked better than it was."""
    inside, means = 0, []
    for number in range(40):
        found = STUDY.judge(made(partial(_only_noise, random.Random(number).gauss)))
        (plan,) = [each for each in found.measures if each.name.startswith("the plan found")]
        assert plan.value is not None and plan.low is not None and plan.high is not None
        inside += plan.low <= 0 <= plan.high
        means.append(plan.value)
    assert inside >= 38
    assert abs(np.mean(means)) <= 0.002


def test_where_no_saving_is_shown_no_plan_is_found() -> None:
    """Full momentum for every role is no plan to train by, and full less full no measurement."""
    found = STUDY.judge(made(lambda values, chance: planted({}, chance.gauss(0, 0.2))))
    assert found.sentence.startswith("No saving was shown role by role")
    assert f"{WHOLE_PLAN} " in found.sentence
    assert not any("--rule" in note for note in found.notes)
    assert all(each.low != each.high for each in found.measures)


def test_rules_are_given_only_where_fresh_trials_show_the_plan_to_be_no_worse() -> None:
    """Each role alone can do with less than AdaPM's plan keeps; all of them together cannot."""
    better = {"embedding": {"none": -0.1}, "experts": {"none": -0.1}}

    def loss(values: dict[str, str], chance: random.Random) -> float:
        return planted({}, chance.gauss(0, 0.06)) + sum(better.get(r, {}).get(kept, 0.0) for r, kept in values.items())

    found = STUDY.judge(made(loss))
    assert "none for embedding, experts" in found.sentence
    assert not any("--rule" in note for note in found.notes)
    assert "The plan found is not shown to end as low as AdaPM's, to within the margin: it is none to train by." in (
        found.notes
    )


def test_a_plan_that_fails_says_where() -> None:
    """Experts lose by low rank: the plan holds in part, and the search keeps them full."""
    dear = {"experts": {"none": 0.4, "low-rank": 0.2}}

    def loss(values: dict[str, str], chance: random.Random) -> float:
        return planted(values, chance.gauss(0, 0.005)) + dear["experts"].get(values["experts"], 0.0)

    found = STUDY.judge(made(loss))
    assert found.measured is ClaimVerdict.IN_PART
    assert "full for value, router, experts" in found.sentence


def test_noise_leaves_it_undecided_and_lost_trialsare_counted() -> None:
    def loss(values: dict[str, str], chance: random.Random) -> float | None:
        return None if chance.random() < 0.1 else planted({}, chance.gauss(0, 0.5))

    found = STUDY.judge(made(loss))
    assert found.measured is ClaimVerdict.UNDECIDED
    assert any("trials without a trained model are left out" in note for note in found.notes)
    assert STUDY.judge(made(lambda values, chance: None)).measured is ClaimVerdict.MISSING


def test_effects_lie_within_their_intervals_as_often_as_these_say() -> None:
    """Over 200 simulated searches 93 to 97 % of the intervals hold the planted effect."""
    chance = random.Random(1)
    references = {role.name: "full" for role in ROLES}
    inside = count = 0
    for _ in range(200):
        drawn = [{role.name: chance.choice(role.choices()) for role in ROLES} for _ in range(60)]
        trials = [
            SearchTrial(sweep=str(place % 3), values=values, loss=planted(values, chance.gauss(0, 0.03)))
            for place, values in enumerate(drawn)
        ]
        found = main_effects(trials, references)
        assert found is not None
        for role, kept in found.columns:
            interval = found.difference({role: kept}, {})
            assert interval is not None and interval.low is not None and interval.high is not None
            inside += interval.low <= COSTS.get(role, {}).get(kept, 0.0) <= interval.high
            count += 1
    assert count == 200 * 15
    assert 0.93 <= inside / count <= 0.97


def test_effects_are_those_of_least_squares() -> None:
    """The readable twin: a factor of two values and one mean is a difference of means."""
    trials = [SearchTrial(sweep="a", values={"x": "off" if n % 2 else "on"}, loss=n**0.5) for n in range(16)]
    found = main_effects(trials, {"x": "off"})
    assert isinstance(found, Effects)
    interval = found.difference({"x": "on"}, {})
    on, off = ([each.loss for each in trials if each.values["x"] == value] for value in ("on", "off"))
    assert interval is not None and interval.mean == pytest.approx(np.mean(on) - np.mean(off))
    back = found.difference({"x": "off"}, {"x": "on"})
    assert back is not None and back.mean == pytest.approx(-interval.mean)
    assert found.difference({"x": "elsewhere"}, {}) is None and found.difference({}, {"y": "on"}) is None
    assert main_effects(trials[:11], {"x": "off"}) is None, "nine degrees of freedom are too few"


def test_a_sweeps_trials_become_evidence() -> None:
    """With their hyperparameters, by the code that service and command line share."""
    spec = STUDY.plans[StudyScale.TINY].parts[0].spec
    assert isinstance(spec, SweepSpec)
    wanted = [planned_parameters(spec, number) or {} for number in range(3)]
    ends = (2.6, 2.4, DIVERGED)
    runs = tuple(run_record(trial_run(spec, n, wanted[n]), n, ends[n], experiment="s0") for n in range(3))
    source = EvidenceSource(
        compare=lambda _: pytest.fail("a sweep is no comparison"),
        sweep=lambda _: report(sweep_record(spec, 3, done=False), runs),
        runs=lambda _: runs,
        observations=lambda _: (),
        fit=lambda *_: None,
    )
    (part,) = gather(STUDY, StudyScale.TINY, {"seed 1": "s0"}, source).parts
    assert [run.hyperparameters for run in part.runs] == wanted
    assert [run.loss for run in part.runs] == [2.6, 2.4, None]
    (adapm,) = part.candidates
    assert adapm.loss is not None and (adapm.loss.mean, adapm.loss.n, adapm.lost) == (2.4, 1, 1)
    assert (part.complete, part.spec_hash) == (False, spec.content_hash())
