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


def test_of_a_baseline_chosen_later_nobody_is_told_that_its_open_verdicts_get_seeds() -> None:
    at_once = comparison_spec(optimizers=("adamw", "adapm", "adapm-mini"), learning_rates=(2e-3,), seeds=range(10))
    in_turn = ComparisonSpec.model_validate(at_once.model_dump() | {"sequential": {}})

    def note(spec: ComparisonSpec) -> str:
        return Analysis(cast(Any, OneExperiment(spec)), cast(Any, None)).compare("e", baseline="adapm").notes[0]

    assert note(in_turn).endswith("; seeds are added by differences to adamw, whatever is open here.")
    assert "seeds are added" not in note(at_once)
