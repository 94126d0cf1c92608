"""The fields in which specifications differ, and those that are equal, are all of their fields."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.specs.differences import SpecDifferences, differences_of, spec_fields
from tests.factories.specification import made_spec
from worker.spec.run import RunSpec


def differences(*specs: RunSpec | None) -> SpecDifferences:
    return differences_of(
        {f"run-{number}": None if spec is None else spec_fields(spec) for number, spec in enumerate(specs)}
    )


SPECS = st.builds(
    made_spec,
    optimizer=st.sampled_from(["adamw", "adapm"]),
    lr=st.sampled_from([1e-3, 1e-3 + 1e-12]),
    steps=st.sampled_from([12, 13]),
    seed=st.sampled_from([1, 2]),
)


@given(st.lists(SPECS, min_size=1, max_size=4))
def test_every_field_is_either_equal_or_different(specs: list[RunSpec]) -> None:
    fields = differences(*specs)
    values_by_field: dict[str, list[str] | list[float] | list[int]] = {
        "optimizer.name": [spec.optimizer.name for spec in specs],
        "optimizer.lr": [spec.optimizer.lr for spec in specs],
        "workload.budget.steps": [spec.workload.budget.steps for spec in specs],
        "seed": [spec.seed for spec in specs],
    }
    assert fields.different == {name: tuple(values) for name, values in values_by_field.items() if len(set(values)) > 1}
    assert len(fields.equal) + len(fields.different) == len(differences(specs[0]).equal)


def test_an_option_that_one_run_lacks_is_a_difference() -> None:
    plain = made_spec(optimizer="adapm")
    ranked = plain.model_copy(update={"optimizer": plain.optimizer.model_copy(update={"options": {"rank_ratio": 0.1}})})
    fields = differences(plain, ranked)
    (values,) = (values for name, values in fields.different.items() if name.endswith("rank_ratio"))
    assert values == ("—", 0.1)


@pytest.mark.parametrize("broken", [0, 1])
def test_a_run_that_cannot_be_read_differs_in_nothing(broken: int) -> None:
    fields = differences(*(None if number == broken else made_spec() for number in range(2)))
    assert fields.different == {} and fields.equal
