"""Notes on an answer that the specification did not ask for."""

from orchestrator.services.analysis import Analysis
from tests.factories.comparison import records
from tests.factories.stores import comparison_spec


def test_a_baseline_that_is_chosen_later_is_noted_before_anything_else() -> None:
    spec = comparison_spec(optimizers=("adamw", "adapm", "adapm-mini"), learning_rates=(2e-3,), seeds=range(2))
    measurement = records(spec, lambda name, lr, seed: 2.3 + 0.3 * (name != "adamw") + 0.001 * seed * len(name))
    analysis = Analysis(lambda _: measurement, lambda _: {})
    planned, chosen = analysis.compare("e"), analysis.judge(*measurement, "adapm")
    assert (planned.baseline, chosen.baseline) == ("adamw", "adapm")
    assert chosen.notes[0] == (
        "The baseline adapm was chosen after the fact (planned: adamw), so intervals are corrected for 3 comparisons "
        "instead of 2."
    )
    assert len(chosen.notes) <= 3 and analysis.judge(*measurement, "adamw") == planned
