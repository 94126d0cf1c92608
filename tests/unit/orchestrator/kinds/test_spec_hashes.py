"""Hashes last: checkpoints and idempotency keys of an older version are known by them."""

import json

import pytest
from pydantic import ValidationError

from orchestrator.kinds.comparison import Candidate, ComparisonSpec
from orchestrator.kinds.tuning import Tuning
from worker.schema import read_stored
from worker.spec.run import Budget, Execution, OptimizerSpec, RunSpec, Workload

WORKLOAD = Workload(model="gpt2-tiny", budget=Budget(steps=10))


def test_a_run_keeps_the_hash_that_it_had_before_there_were_rules_and_retries() -> None:
    run = RunSpec(workload=WORKLOAD, optimizer=OptimizerSpec(name="adamw", lr=1e-3), seed=1)
    assert run.content_hash() == "f296551457500a277c98024ae81f409de32f5278aecbedcd7e5fa9327db6a45d"


def test_what_differs_from_a_default_is_part_of_the_hash() -> None:
    execution = Execution(retry_out_of_memory=False)
    assert execution.model_dump()["retry_out_of_memory"] is False
    assert execution.content_hash() != Execution().content_hash()
    ruled = OptimizerSpec(name="adapm", lr=1e-3, rules=("*=full",))
    assert ruled.model_dump(mode="json")["rules"] == ["*=full"]


def test_grids_of_earlier_versions_are_read_as_the_given_rates_and_may_be_sent_back() -> None:
    """They were extended then, and no line was searched; what is read is accepted as if a user had written it."""
    stored = {"seeds": [7], "extend_grid": 2}
    candidate = Candidate(optimizer="adamw", learning_rates=(1e-3, 2e-3))
    fields = ComparisonSpec(name="a", workload=WORKLOAD, candidates=(candidate,), seeds=(1, 2)).model_dump(mode="json")
    old = read_stored(ComparisonSpec, json.dumps(fields | {"unequal_grids": True, "tuning": stored}))
    assert old.tuning == Tuning(method="grid", seeds=(7,))
    assert ComparisonSpec.model_validate(old.model_dump(mode="json")) == old
    with pytest.raises(ValidationError, match="extend_grid"):
        ComparisonSpec.model_validate(fields | {"tuning": stored})


def test_a_solver_that_is_gone_is_read_where_it_was_stored_and_refused_anew() -> None:
    run = RunSpec(workload=WORKLOAD, optimizer=OptimizerSpec(name="adapm", lr=1e-3), seed=1).model_dump(mode="json")
    run["optimizer"]["options"] = {"solver": "scaled_gd"}
    assert read_stored(RunSpec, json.dumps(run)).optimizer.options == {"solver": "scaled_gd"}
    with pytest.raises(ValidationError, match="must be one of subspace, svd"):
        RunSpec.model_validate(run)
