"""Block rules as hyperparameters: what is refused, what becomes of them in a run, and that they are found again."""

from typing import Any

import pytest

from optim.plan.rules import rule_of
from orchestrator.kinds.block_rules import SUGGESTED, rules_of, values_of
from orchestrator.sweeps.trials import as_candidate, planned_parameters, trial_run
from orchestrator.tuning.search_spaces import Choice
from tests.factories.sweep import refusal_of, sweep_fields, sweep_spec

QUERY, MLP = "rule:*:query", "rule:*.mlp.*.weight"


def one(optimizer: str = "adapm", **fields: Any) -> dict[str, Any]:
    return {"candidates": [{"optimizer": optimizer, **fields}]}


def choice(*values: Any) -> dict[str, Any]:
    return {"kind": "choice", "values": list(values)}


@pytest.mark.parametrize(
    ("fields", "place", "words"),
    [
        (one(space={QUERY: choice("plan", "half")}), QUERY, "must be plan, full, low-rank, none, rank:N"),
        (one(space={QUERY: choice("plan", 8)}), QUERY, "must be plan, full"),
        (one(space={QUERY: choice("plan", "rank:0")}), QUERY, "must be plan, full"),
        (one(space={QUERY: {"kind": "uniform", "low": 0, "high": 1}}), QUERY, "must be a choice of what the blocks"),
        (one(space={"rule:": choice("plan")}), "rule:", "needs a pattern of blocks behind rule:"),
        (one(space={"rule:a b": choice("plan")}), "rule:a b", "without blanks"),
        (one(space={"rule:a/b": choice("plan")}), "rule:a~1b", "must have no / in its pattern"),
        (one("adamw", space={QUERY: choice("plan")}), QUERY, "adamw keeps to no block plan"),
        (one(space={QUERY: choice("plan")}, rules=["*:query=full"]), QUERY, "held fixed by rules as well"),
        (one(space={"rule": choice("plan")}), "rule", "rule:PATTERN"),
    ],
)
def test_what_is_refused_names_its_place(fields: dict[str, Any], place: str, words: str) -> None:
    ((pointer, allowed),) = refusal_of(sweep_fields(**fields)).items()
    assert pointer == f"/candidates/0/space/{place}"
    assert words in allowed


def test_the_catalogs_range_of_a_rule_is_every_first_moment() -> None:
    (candidate,) = sweep_spec(**one(space={QUERY: {"kind": "catalog"}})).candidates
    assert candidate.space == {QUERY: Choice(values=SUGGESTED)}
    for rule in SUGGESTED[1:]:
        rule_of(f"*:query={rule}")


def test_a_trials_rules_stand_in_its_run_behind_the_fixed_ones() -> None:
    """`plan` states nothing; the first trial is the optimizer's own plan."""
    space = {QUERY: choice("plan", "rank:8", "none"), MLP: choice("plan", "full,per:neuron")}
    spec = sweep_spec(**one(space=space, rules=["*.wte.weight=full"]))
    (searched,) = spec.candidates
    assert planned_parameters(spec, 0) == {MLP: "plan", QUERY: "plan"}
    assert trial_run(spec, 0, {MLP: "plan", QUERY: "plan"}).spec.optimizer.rules == ("*.wte.weight=full",)
    parameters = {QUERY: "rank:8", MLP: "full,per:neuron"}
    run = trial_run(spec, 1, parameters).spec
    assert run.optimizer.rules == ("*.wte.weight=full", "*.mlp.*.weight=full,per:neuron", "*:query=rank:8")
    assert searched.parameters_of(run) == parameters
    assert as_candidate(searched, parameters).options == {}


def test_rules_and_values_are_two_ways_of_saying_the_same() -> None:
    values = {QUERY: "none", MLP: "plan"}
    assert rules_of(values | {"lr": 0.1}) == ("*:query=none",)
    assert values_of([*values, "lr"], rules_of(values)) == values
