"""The sentence of each verdict: the effect first, the interval second, what to do third."""

from typing import Any

import pytest

from orchestrator.analysis.verdicts import interval_words, p_number, verdict
from orchestrator.records import CandidateRow, Conclusion, Difference, Instability, Interval, LearningRateRow
from tests.factories.comparison import made_comparison

FINAL = LearningRateRow(
    lr=2e-3, val_loss=None, runs_ended=5, runs_total=5, diverged=0, out_of_memory=0, run_ids=(), lost=0
)


def row(title: str, conclusion: Conclusion, estimate: Difference | None = None, **changes: Any) -> CandidateRow:
    """A row of a leaderboard with that verdict."""
    lost = changes.pop("lost", 0)
    update = {
        "title": title,
        "conclusion": conclusion,
        "difference": estimate,
        "val_loss": Interval(mean=2.302, low=2.30, high=2.304, n=5),
        "final": FINAL.model_copy(update={"lost": lost}),
        "edge_of_grid": False,
        "instability": Instability(lost=lost, runs=5, low=0.005 * lost, high=0.716 * lost, p_value=1.0),
    }
    return made_comparison().rows[0].model_copy(update=update | changes)


def difference(mean: float, half: float | None, **changes: Any) -> Difference:
    """A difference with so wide an interval to either side."""
    low, high = (None, None) if half is None else (mean - half, mean + half)
    fields: dict[str, Any] = {
        "mean": mean,
        "low": low,
        "high": high,
        "n": 5,
        "p_value": None if half is None else 0.012,
    }
    return Difference.model_validate({"comparisons": 1, "margin": 0.01} | fields | changes)


ADAMW = row("AdamW", Conclusion.BASELINE)


@pytest.mark.parametrize(
    ("conclusion", "found", "changes", "expected"),
    [
        (
            Conclusion.BETTER, difference(-0.06, 0.04), {},
            "Better: AdaPM ends 0.0600 nats lower than AdamW (95 %: 0.0200 to 0.1000, 5 seeds, p = 0.012).",
        ),
        (
            Conclusion.WORSE, difference(0.06, 0.04, p_value=1e-5), {},
            "Worse: AdaPM ends 0.0600 nats higher than AdamW (95 %: 0.0200 to 0.1000, 5 seeds, p < 0.001).",
        ),
        (
            Conclusion.AS_GOOD, difference(0.001, 0.004, p_value=0.6), {},
            "As good as AdamW within 0.01 nats: AdaPM ends 0.0010 nats higher than AdamW (95 %: -0.0030 to 0.0050, "
            "5 seeds, p = 0.6).",
        ),
        (
            Conclusion.AS_GOOD, difference(0.0, 0.0, p_value=1.0), {},
            "As good as AdamW within 0.01 nats: AdaPM ends at the same loss as AdamW (95 %: 0.0000 to 0.0000, 5 seeds, "
            "p = 1).",
        ),
        (
            Conclusion.UNDECIDED, difference(-0.01, 0.03, p_value=0.4, seeds_to_decide=22), {},
            "Undecided: AdaPM ends 0.0100 nats lower than AdamW (95 %: -0.0200 to 0.0400, 5 seeds, p = 0.4). "
            "A new experiment on about 22 fresh seeds would decide.",
        ),
        (
            Conclusion.UNDECIDED, difference(0.01, 0.3, p_value=0.9), {},
            "Undecided: AdaPM ends 0.0100 nats higher than AdamW (95 %: -0.2900 to 0.3100, 5 seeds, p = 0.9). "
            "Even a thousand seeds would not decide so small a difference.",
        ),
        (
            Conclusion.UNDECIDED, difference(-0.01, None, n=1), {},
            "Undecided: AdaPM ends 0.0100 nats lower than AdamW (1 seed). Add seeds.",
        ),
        (
            Conclusion.UNDECIDED, difference(0.06, 0.04), {"edge_of_grid": True},
            "Undecided: AdaPM ends 0.0600 nats higher than AdamW (95 %: 0.0200 to 0.1000, 5 seeds, p = 0.012). "
            "AdaPM's best learning rate is the last one tried, so a better one may lie beyond.",
        ),
        (
            Conclusion.UNDECIDED, difference(0.0, 0.004, p_value=0.9, is_within_margin=True), {},
            "Undecided: AdaPM ends at the same loss as AdamW (95 %: -0.0040 to 0.0040, 5 seeds, p = 0.9). "
            "AdamW lost more runs, so neither is called better: find out why.",
        ),
        (Conclusion.UNDECIDED, None, {}, "Undecided: no seed has a loss both here and for AdamW."),
        (
            Conclusion.UNSTABLE, difference(-0.06, 0.04, n=4), {"lost": 1},
            "Unstable: 1 of 5 runs was lost (95 %: 0 to 72 %), 0 of 5 of AdamW's (p = 1). AdaPM ends 0.0600 nats lower "
            "than AdamW (95 %: 0.0200 to 0.1000, 4 seeds, p = 0.012) on the others.",
        ),
        (
            Conclusion.UNSTABLE, None, {"lost": 1},
            "Unstable: 1 of 5 runs was lost (95 %: 0 to 72 %), 0 of 5 of AdamW's (p = 1).",
        ),
        (Conclusion.BASELINE, None, {}, "The baseline: 2.3020 ± 0.0020 nats (5 seeds) at learning rate 0.002."),
    ],
)  # fmt: skip
def test_each_verdict_has_one_sentence(
    conclusion: Conclusion, found: Difference | None, changes: dict[str, Any], expected: str
) -> None:
    assert verdict(row("AdaPM", conclusion, found, **changes), ADAMW, " nats") == expected


def test_of_replicates_the_sentence_counts_replicates() -> None:
    estimate = difference(-0.01, 0.03, p_value=0.4, seeds_to_decide=12)
    sentence = verdict(row("AdaPM", Conclusion.UNDECIDED, estimate), ADAMW, "", "replicate")
    assert sentence.endswith("5 replicates, p = 0.4). A new experiment on about 12 fresh replicates would decide.")


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.034, "0.034"), (1e-9, "< 0.001"), (0.04999999, "< 0.05"), (0.0496, "< 0.05"), (0.05, "0.05")],
)
def test_a_printed_p_value_lies_on_its_side_of_the_level(value: float, text: str) -> None:
    assert p_number(value) == text


def test_an_interval_with_one_end_is_said_with_that_end() -> None:
    ends = [(0.3, 0.4), (0.3, None), (None, 0.4), (None, None)]
    assert [interval_words(*bounds, str) for bounds in ends] == ["0.3 to 0.4", "from 0.3", "up to 0.4", ""]
