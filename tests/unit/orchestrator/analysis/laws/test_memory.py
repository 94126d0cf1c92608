"""Memory at sizes that were not trained: exact bytes by name, a line with its interval by number."""

from collections.abc import Sequence
from threading import Event

import pytest

from orchestrator.analysis.laws.memory import count_state, extrapolate_state
from orchestrator.analysis.laws.targets import Target, is_target, larger_presets, target
from worker.footprint import cache as worker_needs
from worker.footprint.cache import FootprintBytes, FootprintCache, FootprintKey, OptimizerOptions
from worker.footprint.count import footprint


def test_what_training_needs_is_what_the_footprint_counts() -> None:
    """Options count, an optimizer is counted once, and one that cannot be counted does not lose the others."""
    bad = ("gpt2-tiny", OptimizerOptions.from_fields("no-optimizer", {}))
    tiny = ("gpt2-tiny", OptimizerOptions.from_fields("adapm", {"rank_ratio": 0.2}))
    footprints = FootprintCache()
    found = footprints.count([bad, tiny])
    assert list(found) == [tiny]
    exact = footprint("gpt2-tiny", ["adapm"], {"rank_ratio": 0.2})
    assert found[tiny].state_bytes == exact.optimizers[0].state_bytes
    assert found[tiny].parameters == exact.parameters
    assert footprints.count([tiny], wait=False) == found


def test_who_does_not_wait_finds_the_count_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be counted is left out, and asked for again."""
    known, unknown = (
        ("gpt2-tiny", OptimizerOptions.from_fields("adamw", {})),
        ("gpt2-tiny", OptimizerOptions.from_fields("nothing", {})),
    )
    need, begun, go_on = FootprintBytes(parameters=1, parameter_bytes=4, gradient_bytes=4, state_bytes=8), [], Event()

    def counted_slowly(keys: Sequence[FootprintKey]) -> dict[FootprintKey, FootprintBytes]:
        begun.append(keys)
        assert go_on.wait(60)
        return {known: need}

    monkeypatch.setattr(worker_needs, "_count_in_process", counted_slowly)
    footprints = FootprintCache()
    assert footprints.count([known, unknown], wait=False) == {}
    assert footprints.count([known, unknown], wait=False) == {}
    go_on.set()
    assert footprints.count([known, unknown]) == {known: need}
    assert begun == [[known, unknown], [unknown]]


def test_states_in_proportion_to_the_size_go_on_so() -> None:
    found = extrapolate_state([(10**6, 8 * 10**6), (10**7, 8 * 10**7), (10**8, 8 * 10**8)], 10**9)
    assert found is not None and not found.exact
    assert found.state_bytes.value == pytest.approx(8e9)
    assert found.state_bytes.low == pytest.approx(8e9) == found.state_bytes.high
    assert found.total().value == pytest.approx(16e9)


def test_states_off_the_line_have_an_interval_around_it() -> None:
    found = extrapolate_state([(10**6, 8 * 10**6), (10**7, 9 * 10**7), (10**8, 8 * 10**8), (10**9, 9 * 10**9)], 10**10)
    assert found is not None
    low, value, high = found.state_bytes.low, found.state_bytes.value, found.state_bytes.high
    assert low is not None and high is not None
    assert low < value < high


@pytest.mark.parametrize(
    ("states", "value"), [([(10, 80)], 800.0), ([(10, 80), (20, 160)], 800.0), ([(10, 80)] * 3, 800.0)]
)
def test_few_sizes_give_no_interval(states: list[tuple[int, int]], value: float) -> None:
    found = extrapolate_state(states, 100)
    assert found is not None
    assert (found.state_bytes.low, found.state_bytes.high) == (None, None)
    assert found.state_bytes.value == pytest.approx(800.0)


def test_nothing_known_is_nothing_said() -> None:
    assert extrapolate_state([], 100) is None
    assert count_state(FootprintBytes(parameters=1, parameter_bytes=4, gradient_bytes=4, state_bytes=None)) is None


def test_targets_are_models_or_numbers() -> None:
    assert target("1e9", "byte") == Target(10**9)
    assert target("gpt2-tiny", "byte") == Target(858_880, None, "gpt2-tiny")
    assert target("gpt2-tiny", "bpe-1256").parameters == 858_880 + 1000 * 128
    assert larger_presets({"gpt2-nano", "gpt2-tiny"}, "byte") == ("gpt2-mini", "gpt2-40m")
    assert larger_presets({"linear"}, "byte") == ()
    for wrong in ("gpt9", "", "0", "-1", "nan", "inf", "1e16"):
        with pytest.raises(ValueError, match="must be a number of parameters"):
            is_target(wrong)


def test_what_could_not_be_counted_once_is_counted_again(monkeypatch):
    key, need = ("gpt2-tiny", OptimizerOptions.from_fields("adamw", {})), FootprintBytes(
        parameters=1, parameter_bytes=4, gradient_bytes=4, state_bytes=8
    )  # fmt: skip
    answers = iter([{}, {key: need}])
    monkeypatch.setattr(worker_needs, "_count_in_process", lambda keys: next(answers))
    needs = FootprintCache()
    assert needs.count([key]) == {}
    assert needs.count([key]) == {key: need}
