"""What a reader is told of an answer that the specification did not ask for."""

from collections.abc import Sequence
from typing import Any, cast

from orchestrator.analysis.comparison import ValidationCurve
from orchestrator.kinds.comparison import ComparisonSpec
from orchestrator.records import ExperimentRecord, RunRecord
from orchestrator.services.analysis import Analysis
from tests.factories.comparison import records
from tests.factories.stores import comparison_spec


class OneExperiment:
    """A source that has it in memory."""

    def __init__(self, spec: ComparisonSpec) -> None:
        self.found = records(spec, lambda name, lr, seed: 2.3 + 0.3 * (name != "adamw") + 0.001 * seed * len(name))

    def read(self, experiment_id: str) -> tuple[ExperimentRecord, tuple[RunRecord, ...]]:
        """Whatever is asked for."""
        return self.found

    def curves(self, run_ids: Sequence[str]) -> dict[str, ValidationCurve]:
        """None."""
        return {}


def test_a_baseline_chosen_later_widens_the_intervals_and_is_said_first() -> None:
    spec = comparison_spec(optimizers=("adamw", "adapm", "adapm-mini"), learning_rates=(2e-3,), seeds=range(10))
    answers = Analysis(cast(Any, OneExperiment(spec)), cast(Any, None))
    planned, chosen = answers.compare("e"), answers.compare("e", baseline="adapm")
    assert (planned.baseline, chosen.baseline) == ("adamw", "adapm")
    assert {row.difference.comparisons for row in planned.rows if row.difference} == {2}
    assert {row.difference.comparisons for row in chosen.rows if row.difference} == {3}
    assert "adapm" in chosen.notes[0] and chosen.notes[1:] == planned.notes
