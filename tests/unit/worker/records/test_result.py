"""Records are closed and hold finite numbers only."""

import json
import math
from typing import Any

import pytest
from pydantic import ValidationError

from tests.factories.record import made_result
from tests.factories.stores import result
from worker.records.result import Point, Result


@pytest.mark.parametrize(
    "fields",
    [{"train_loss": math.nan}, {"val_loss": math.inf}, {"step": -1}, {"surprise": 1}],
)
def test_a_point_that_could_not_travel_or_be_drawn_is_refused(fields: dict[str, Any]) -> None:
    """JSON has no NaN, and a chart no infinity."""
    with pytest.raises(ValidationError):
        Point(**{"step": 1, "tokens": 1, **fields})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("device_seconds", True),
        ("device_seconds", "3"),
        ("final_val_loss", False),
        ("final_val_loss", "2.5"),
        ("steps", True),
        ("steps", "10"),
        ("steps", 2.5),
        ("steps", -1),
        ("parameters", 2**53 + 1),
    ],
)
def test_what_is_no_number_of_a_result_is_refused(field: str, value: object) -> None:
    """Text and truth values; and counts that a database could not hold."""
    with pytest.raises(ValidationError):
        Result.model_validate(made_result().model_dump() | {field: value})


def test_a_whole_number_may_be_written_with_a_point_and_a_fraction_without() -> None:
    read = Result.model_validate_json(
        json.dumps(made_result().model_dump(mode="json") | {"steps": 10.0, "energy_joules": 3})
    )
    assert (read.steps, read.energy_joules) == (10, 3.0)


def test_a_result_survives_json() -> None:
    """Every field, nested ones too."""
    assert Result.model_validate_json(made_result().model_dump_json()) == made_result()


@pytest.mark.parametrize(
    ("initial", "lowest", "final", "judged"),
    [(5.5, 2.3, 2.32, 2.32), (5.5, 2.3, 3.0, None), (-0.32, -0.68, -0.64, -0.64)],
    ids=["fell", "gave back what it had won", "a reward is noisy"],
)
def test_a_run_that_ends_far_above_its_lowest_loss_is_lost(
    initial: float, lowest: float, final: float, judged: float | None
) -> None:
    fields = {"initial_val_loss": initial, "lowest_val_loss": lowest}
    assert result(final_val_loss=final).model_copy(update=fields).judged_loss() == judged
