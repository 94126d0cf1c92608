"""A result from the wire, and the loss that it is judged by."""

import json

import pytest

from tests.factories.record import made_result
from tests.factories.stores import result
from worker.records.result import Result


def test_a_whole_number_may_be_written_with_a_point_and_a_fraction_without() -> None:
    read = Result.model_validate_json(
        json.dumps(made_result().model_dump(mode="json") | {"steps": 10.0, "energy_joules": 3})
    )
    assert (read.steps, read.energy_joules) == (10, 3.0)


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
