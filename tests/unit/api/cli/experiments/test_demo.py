"""The comparison that `adapm-bench demo` runs is a fair one."""

from api.cli.experiments.demo import DEMO


def test_the_demo_tunes_first_and_compares_on_other_seeds() -> None:
    assert DEMO.tuning is not None
    assert DEMO.tuning.extend_grid > 0, "an optimum at the edge of the grid is followed"
    assert len(DEMO.seeds) == 5 and not set(DEMO.seeds) & set(DEMO.tuning.seeds)
    assert DEMO.workload.model == "gpt2-nano" and DEMO.workload.budget.steps == 150
