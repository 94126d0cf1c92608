"""The sizes that a law predicts: models of the catalog, or numbers of parameters."""

import pytest

from orchestrator.analysis.laws.targets import Target, is_target, larger_presets, target


def test_targets_are_models_or_numbers() -> None:
    assert target("1e9", "byte") == Target(10**9)
    assert target("gpt2-tiny", "byte") == Target(858_880, None, "gpt2-tiny")
    assert target("gpt2-tiny", "bpe-1256").parameters == 858_880 + 1000 * 128
    assert larger_presets({"gpt2-nano", "gpt2-tiny"}, "byte") == ("gpt2-mini", "gpt2-40m")
    assert larger_presets({"linear"}, "byte") == ()
    for wrong in ("gpt9", "", "0", "-1", "nan", "inf", "1e16"):
        with pytest.raises(ValueError, match="must be a number of parameters"):
            is_target(wrong)
