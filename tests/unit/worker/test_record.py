"""Records are closed and hold finite numbers only."""

import math
from typing import Any

import pytest
from pydantic import ValidationError

from tests.reference.made_record import made_result
from worker.record import Point, Result


@pytest.mark.parametrize(
    "fields",
    [{"train_loss": math.nan}, {"val_loss": math.inf}, {"step": -1}, {"surprise": 1}],
)
def test_a_point_that_could_not_travel_or_be_drawn_is_refused(fields: dict[str, Any]) -> None:
    """JSON has no NaN, and a chart no infinity."""
    with pytest.raises(ValidationError):
        Point(**{"step": 1, "tokens": 1, **fields})


def test_a_result_survives_json() -> None:
    """Every field, nested ones too."""
    assert Result.model_validate_json(made_result().model_dump_json()) == made_result()
