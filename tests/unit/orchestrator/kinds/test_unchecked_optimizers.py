"""Optimizers of `pytorch_optimizer` by their classes' names, in specifications."""

from typing import Any

import jsonschema
import pytest
from pydantic import ValidationError

from orchestrator.kinds.comparison import ComparisonSpec
from orchestrator.kinds.sweep import SweepSpec
from orchestrator.specs.schema import schema

NAME = "pytorch_optimizer.Prodigy"
WORKLOAD = {"model": "gpt2-tiny", "budget": {"steps": 20}}


def fields(**candidate: Any) -> dict[str, Any]:
    chosen = {"optimizer": NAME, "learning_rates": [1.0]} | candidate
    return {"name": "prodigy", "workload": WORKLOAD, "candidates": [chosen], "seeds": [1]}


def test_a_comparison_takes_one_with_options_that_nobody_knows_here() -> None:
    spec = ComparisonSpec.model_validate(fields(options={"d_coef": 0.5}))
    assert spec.candidates[0].title() == "Prodigy (unchecked)"
    (run,) = spec.first_runs()
    assert (run.spec.optimizer.name, run.spec.optimizer.options) == (NAME, {"d_coef": 0.5})


def test_what_is_known_of_it_is_checked() -> None:
    with pytest.raises(ValidationError, match="weight_decay"):
        ComparisonSpec.model_validate(fields(options={"weight_decay": -1.0}))
    with pytest.raises(ValidationError, match="unknown optimizer"):
        ComparisonSpec.model_validate(fields(optimizer="Prodigy"))


def test_a_sweep_of_one_writes_out_its_rates() -> None:
    spec = SweepSpec.model_validate(
        {"kind": "sweep", "name": "prodigy", "workload": WORKLOAD, "candidates": [{"optimizer": NAME}], "seed": 1}
    )
    assert spec.candidates[0].ranges().keys() == {"lr"}


def test_the_schema_knows_it() -> None:
    comparison_schema = schema("comparison")
    jsonschema.validate(fields() | {"kind": "comparison"}, comparison_schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(fields(optimizer="torch.Adam") | {"kind": "comparison"}, comparison_schema)
