"""Memory at sizes that were not trained: exact bytes by name, a line with its interval by number."""

import pytest

from orchestrator.analysis.laws.memory import count_state, extrapolate_state
from orchestrator.analysis.laws.targets import Target, is_target, larger_presets, target
from worker.records.footprint import Footprint, OptimizerFootprint


def test_states_in_proportion_to_the_size_go_on_so() -> None:
    forecast = extrapolate_state([(10**6, 8 * 10**6), (10**7, 8 * 10**7), (10**8, 8 * 10**8)], 10**9)
    assert forecast is not None and not forecast.exact
    assert forecast.state_bytes.value == pytest.approx(8e9)
    assert forecast.total_bytes() == pytest.approx(16e9)


@pytest.mark.parametrize(
    ("states", "value"), [([(10, 80)], 800.0), ([(10, 80), (20, 160)], 800.0), ([(10, 80)] * 3, 800.0)]
)
def test_one_size_is_continued_in_proportion(states: list[tuple[int, int]], value: float) -> None:
    forecast = extrapolate_state(states, 100)
    assert forecast is not None
    assert forecast.state_bytes.value == pytest.approx(800.0)


def test_nothing_known_is_nothing_said() -> None:
    assert extrapolate_state([], 100) is None
    uncounted = OptimizerFootprint(optimizer="own", title="Own", options={}, state_bytes=None)
    need = Footprint(
        model="gpt2-tiny", parameters=1, parameter_bytes=4, gradient_bytes=4, optimizers=(uncounted,),
        baseline_bytes=8,
    )  # fmt: skip
    assert count_state(need) is None


def test_targets_are_models_or_numbers() -> None:
    assert target("1e9", "byte") == Target(10**9)
    assert target("gpt2-tiny", "byte") == Target(858_880, None, "gpt2-tiny")
    assert target("gpt2-tiny", "bpe-1256").parameters == 858_880 + 1000 * 128
    assert larger_presets({"gpt2-nano", "gpt2-tiny"}, "byte") == ("gpt2-mini", "gpt2-40m")
    assert larger_presets({"linear"}, "byte") == ()
    for wrong in ("gpt9", "", "0", "-1", "nan", "inf", "1e16"):
        with pytest.raises(ValueError, match="must be a number of parameters"):
            is_target(wrong)
