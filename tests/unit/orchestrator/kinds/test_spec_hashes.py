"""Hashes last: checkpoints and idempotency keys of an older version are known by them."""

from orchestrator.kinds.comparison import Candidate, ComparisonSpec
from worker.spec.run import Budget, Execution, OptimizerSpec, RunSpec, Workload

WORKLOAD = Workload(model="gpt2-tiny", budget=Budget(steps=10))


def test_a_run_keeps_the_hash_that_it_had_before_there_were_rules_and_retries() -> None:
    run = RunSpec(workload=WORKLOAD, optimizer=OptimizerSpec(name="adamw", lr=1e-3), seed=1)
    assert run.content_hash() == "f296551457500a277c98024ae81f409de32f5278aecbedcd7e5fa9327db6a45d"


def test_a_comparison_keeps_the_hash_that_it_had_before_there_were_limits() -> None:
    candidate = Candidate(optimizer="adamw", learning_rates=(1e-3,))
    comparison = ComparisonSpec(name="a comparison", workload=WORKLOAD, candidates=(candidate,), seeds=(1, 2))
    assert comparison.content_hash() == "1c181c89945efa1d8b7c3f807e03c2769049bd0a54e12e6a7ecec1a9aa118760"


def test_what_differs_from_a_default_is_part_of_the_hash() -> None:
    execution = Execution(retry_out_of_memory=False)
    assert execution.model_dump()["retry_out_of_memory"] is False
    assert execution.content_hash() != Execution().content_hash()
    ruled = OptimizerSpec(name="adapm", lr=1e-3, rules=("*=full",))
    assert ruled.model_dump(mode="json")["rules"] == ["*=full"]
