"""Comparisons: who ranks where, what is claimed, and what is said beside it."""

import json
import math
import re
from collections.abc import Callable
from statistics import fmean

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.analysis.comparison import ValidationCurve, compare, evaluation_error
from orchestrator.analysis.profiles import performance_profiles
from orchestrator.analysis.statistics import mean_interval, paired_difference
from orchestrator.jobs import RunStatus
from orchestrator.kinds.comparison import Candidate, ComparisonSpec
from orchestrator.kinds.experiment import PlannedRun
from orchestrator.kinds.tuning import Tuning
from orchestrator.records import CandidateRow, Comparison, Conclusion, OpenInterval
from tests.factories.comparison import Outcome, evaluated_on, falling, records, tuned_records
from tests.factories.stores import comparison_spec, result
from tests.twins import statistics as reference
from worker.records.result import Result, Verdict

OPTIMIZERS = ("adamw", "adapm", "adapm-mini")


def compared(spec: ComparisonSpec, outcome: Callable[[str, float, int], Outcome]) -> Comparison:
    """The comparison in which `outcome(candidate, lr, seed)` is how each run ended."""
    found = compare(*records(spec, outcome))
    json.dumps(found.model_dump(mode="json"), allow_nan=False)
    return found


def spec(seeds: int = 3, rates: tuple[float, ...] = (1e-3, 2e-3, 4e-3)) -> ComparisonSpec:
    return comparison_spec(optimizers=OPTIMIZERS, learning_rates=rates, seeds=range(seeds))


def row(comparison: Comparison, candidate: str) -> CandidateRow:
    return next(each for each in comparison.rows if each.candidate == candidate)


def bowl(lr: float, seed: int) -> float:
    """A loss that is lowest at lr 2e-3, in a flat basin, and differs from seed to seed."""
    return 2.3 + abs(lr - 2e-3) * 5 + 0.001 * seed


def test_each_candidate_stands_at_its_best_rate_and_the_best_stands_first() -> None:
    shift = {"adamw": 0.0, "adapm": -0.05, "adapm-mini": 0.02}
    found = compared(spec(), lambda name, lr, seed: bowl(lr, seed) + shift[name])
    assert [each.candidate for each in found.rows] == ["adapm", "adamw", "adapm-mini"]
    assert [each.best_lr for each in found.rows] == [2e-3] * 3
    assert not any(each.edge_of_grid for each in found.rows)
    assert found.complete
    best = found.rows[0]
    assert best.val_loss is not None
    assert best.val_loss.n == 3
    assert best.val_loss.mean == pytest.approx(2.251)
    assert best.title == "AdaPM"
    assert best.device_hours == pytest.approx(0.9), "nine runs of six minutes: the whole grid counts"


def test_a_difference_is_paired_by_seed() -> None:
    """Seeds that differ by 1 nat among themselves hide no difference of 0.05 that every pair shows."""
    of = evaluated_on(spec())
    found = compared(of, lambda name, lr, seed: seed + bowl(lr, 0) - (0.05 + 0.001 * seed) * (name == "adapm"))
    difference = row(found, "adapm").difference
    assert difference is not None
    assert difference.n == 3
    assert difference.mean == pytest.approx(-0.051)
    assert difference.p_value is not None
    assert difference.p_value < 0.001
    verdict = row(found, "adapm").verdict
    assert verdict.startswith("Better than AdamW by 0.0510 nats (simultaneous 95 % interval -0.06")


def test_a_difference_that_noise_explains_is_not_claimed() -> None:
    noise = {0: 0.02, 1: -0.03, 2: 0.04}
    found = compared(spec(), lambda name, lr, seed: bowl(lr, seed) - noise[seed] * (name == "adapm"))
    verdict = row(found, "adapm").verdict
    assert verdict.startswith(
        "No difference to AdamW shown: 0.0100 nats below it on average (simultaneous 95 % interval"
    )
    assert "n = 3, p = " in verdict


def test_intervals_and_p_values_are_for_all_candidates_at_once() -> None:
    """The same losses beside one candidate and beside two: the p-value doubles, and the interval widens with it."""
    gain = {"adamw": (0, 0, 0), "adapm": (0.020, 0.028, 0.022), "adapm-mini": (0.01, 0.04, 0.02)}

    def outcome(name: str, lr: float, seed: int) -> Outcome:
        return bowl(lr, seed) - gain[name][seed]

    three = compared(comparison_spec(optimizers=OPTIMIZERS, seeds=range(3)), outcome)
    two = compared(comparison_spec(optimizers=OPTIMIZERS[:2], seeds=range(3)), outcome)
    alone, beside = (row(each, "adapm").difference for each in (two, three))
    assert alone is not None and alone.p_value is not None and alone.low is not None
    assert beside is not None and beside.p_value is not None and beside.low is not None
    assert (alone.comparisons, beside.comparisons) == (1, 2)
    assert beside.p_value == pytest.approx(2 * alone.p_value)
    assert beside.low < alone.low
    note = "The intervals of all 2 differences hold together with 95 %; p-values are corrected alike (Bonferroni)."
    assert note in three.notes and note not in two.notes


def test_a_verdict_does_not_hang_on_what_became_of_others() -> None:
    def outcome(name: str, lr: float, seed: int) -> Outcome:
        return bowl(lr, seed) - (0.02 + 0.002 * seed) * (name == "adapm")

    whole = row(compared(spec(), outcome), "adapm")
    lost = row(
        compared(spec(), lambda name, *run: diverged() if name == "adapm-mini" else outcome(name, *run)), "adapm"
    )
    assert (whole.difference, whole.verdict) == (lost.difference, lost.verdict)


def near(gaps: tuple[float, ...], margin: float | None = None) -> CandidateRow:
    """AdaPM, off AdamW by these gaps on seeds 0, 1, …, at one rate."""
    of = comparison_spec(optimizers=OPTIMIZERS[:2], seeds=range(len(gaps)))
    of = evaluated_on(ComparisonSpec.model_validate(of.model_dump() | {"equivalence_margin": margin}))
    return row(compared(of, lambda name, lr, seed: 2.3 + 0.01 * seed + gaps[seed] * (name == "adapm")), "adapm")


def test_as_good_as_the_baseline_is_a_verdict_within_the_margin_that_was_set() -> None:
    gaps = (0.001, -0.002, 0.002, -0.001, 0.001)
    found = near(gaps)
    assert found.conclusion is Conclusion.AS_GOOD
    assert found.verdict.startswith(
        "As good as AdamW within 0.01 nats: 0.0002 nats above it on average at learning rate 0.001 each (95 % interval "
    )
    assert near(gaps, 0.001).conclusion is Conclusion.UNDECIDED, "its interval reaches beyond 0.001"
    assert near(gaps, 0.005).verdict.startswith("As good as AdamW within 0.005 nats")


def test_a_small_difference_that_is_shown_is_said_to_be_within_the_margin() -> None:
    found = near((0.003, 0.002, 0.003, 0.002, 0.003))
    assert found.conclusion is Conclusion.WORSE
    assert found.verdict.endswith("It is shown to be less than the margin of 0.01 nats.")
    assert "margin" not in near((0.03, 0.02, 0.03, 0.02, 0.03)).verdict


NOISE = ((0.003, -0.002, 0.001), (-0.001, 0.002, -0.003), (0.002, 0.001, -0.001), (0.001, -0.003, 0.002))


def spiking(name: str) -> Comparison:
    """Two candidates at three rates on five seeds; of one of them a run at the best rate ends half a nat too high."""

    def outcome(candidate: str, lr: float, seed: int) -> float:
        own = NOISE[(seed + int(1000 * lr)) % 4][(seed + (candidate == "adapm")) % 3]
        return bowl(lr, seed) + own + 0.5 * ((candidate, lr, seed) == (name, 2e-3, 3))

    return compared(
        comparison_spec(optimizers=OPTIMIZERS[:2], learning_rates=(1e-3, 2e-3, 4e-3), seeds=range(5)), outcome
    )


def test_who_spikes_more_often_than_the_baseline_gets_no_verdict_on_its_loss() -> None:
    adapm = row(spiking("adapm"), "adapm")
    assert adapm.conclusion is Conclusion.UNSTABLE
    assert adapm.best_lr == 2e-3
    assert adapm.verdict == (
        "Not stable, so no verdict on its loss: 1 of 5 runs spiked or diverged (95 % interval 1 to 72 %), 0 of 5 of "
        "AdamW's (p = 1)."
    )
    assert adapm.difference is not None
    assert (adapm.difference.n, adapm.difference.p_value, adapm.difference.spiked) == (4, None, 1)


def test_a_spike_of_the_baseline_is_left_out_and_said() -> None:
    found = spiking("adamw")
    adamw, adapm = row(found, "adamw"), row(found, "adapm")
    assert adapm.difference is not None and adapm.difference.baseline_spiked == 1
    assert adapm.conclusion in (Conclusion.AS_GOOD, Conclusion.UNDECIDED)
    assert "Seeds with a spike left out: 0 of 5 runs" in adapm.verdict
    assert adamw.verdict.endswith("1 of 5 runs spiked or diverged (95 % interval 1 to 72 %).")


def twelve_runs(shift: float, spikes: dict[tuple[str, int], float]) -> Comparison:
    """AdamW and AdaPM, which is off by `shift`, at three rates on six seeds, with spikes at the best rate."""
    of = comparison_spec(optimizers=OPTIMIZERS[:2], learning_rates=(1e-3, 2e-3, 4e-3), seeds=range(6))

    def outcome(candidate: str, lr: float, seed: int) -> float:
        own = NOISE[(seed + int(1000 * lr)) % 4][(seed + (candidate == "adapm")) % 3]
        spike = spikes.get((candidate, seed), 0.0) if lr == 2e-3 else 0.0
        return bowl(lr, seed) + own + shift * (candidate == "adapm") + spike

    return compared(of, outcome)


def test_a_spike_of_the_baseline_puts_nobody_before_it_who_is_worse() -> None:
    """AdaPM is worse by 0.06 on each seed; a spike lifts the baseline's mean of all seeds above AdaPM's."""
    found = twelve_runs(0.06, {("adamw", 3): 0.5})
    adamw, adapm = row(found, "adamw"), row(found, "adapm")
    assert adapm.conclusion is Conclusion.WORSE
    assert [each.candidate for each in found.rows] == ["adamw", "adapm"]
    assert adamw.val_loss is not None and adapm.val_loss is not None and adapm.difference is not None
    assert adapm.val_loss.mean - adamw.val_loss.mean == pytest.approx(adapm.difference.mean)
    assert (adamw.val_loss.n, adapm.val_loss.n, adapm.difference.n) == (5, 5, 5)
    assert (adamw.on_pareto_front, adapm.on_pareto_front) == (True, False)
    assert (adamw.pareto_front_shown, adapm.pareto_front_shown) == (True, True)
    undecided = twelve_runs(0.001, {})
    assert {each.conclusion for each in undecided.rows} == {Conclusion.BASELINE, Conclusion.UNDECIDED}
    assert {each.pareto_front_shown for each in undecided.rows} == {False}
    assert adamw.instability is not None and (adamw.instability.lost, adamw.instability.runs) == (1, 6)
    assert any(note.startswith("Seeds on which a run spiked") for note in found.notes)
    assert not any("has 5 of its 6 seeds" in note or "paired over" in note for note in found.notes)


def test_who_is_unstable_ranks_behind_and_off_the_front() -> None:
    """Its mean is one over the seeds that survived, however low."""
    found = twelve_runs(-0.05, {("adapm", 3): 0.5})
    adapm = row(found, "adapm")
    assert adapm.conclusion is Conclusion.UNSTABLE
    assert adapm.val_loss is not None and adapm.val_loss.n == 5
    assert found.rows[-1] == adapm
    assert not adapm.on_pareto_front


def test_spikes_on_half_of_the_seeds_leave_nothing_to_decide_by() -> None:
    adapm = row(twelve_runs(0.0, {("adamw", 1): 0.2, ("adamw", 3): 0.5, ("adapm", 4): 0.33}), "adapm")
    assert adapm.difference is not None and adapm.difference.most_spiked
    assert adapm.conclusion is Conclusion.NOT_COMPARED
    assert adapm.verdict.startswith("No verdict, for half of the seeds and more have a spike: 1 of 6 runs")


def test_grids_without_phases_say_what_the_choice_may_have_added() -> None:
    """Two rates whose losses cross from seed to seed: the lower mean is chance's."""
    losses = {(1e-3, 0): 2.30, (1e-3, 1): 2.34, (1e-3, 2): 2.31, (2e-3, 0): 2.33, (2e-3, 1): 2.309, (2e-3, 2): 2.32}
    of = comparison_spec(optimizers=OPTIMIZERS[:2], learning_rates=(1e-3, 2e-3), seeds=range(3))
    found = compared(of, lambda name, lr, seed: losses[lr, seed])
    fresh = (2.33 + 2.34 + 2.32) / 3
    assert row(found, "adapm").selection_gain == pytest.approx(fresh - (2.30 + 2.34 + 2.31) / 3)
    (note,) = (note for note in found.notes if note.startswith("The seeds that chose the learning rates judge them"))
    assert "The intervals of differences are wider" in note and "of a loss itself does not hold that" in note


def test_the_interval_of_grids_without_phases_covers_what_the_choice_may_have_done() -> None:
    """It is wider than the paired t-test's by the regret and by what selection took off the other's loss."""
    found = twelve_runs(0.0, {})
    adamw, adapm = row(found, "adamw"), row(found, "adapm")
    of = adapm.difference
    assert of is not None and of.low is not None and of.high is not None and of.regret > 0 < of.baseline_regret
    assert adamw.selection_gain is not None and adapm.selection_gain is not None

    def losses(name: str) -> list[float]:
        return [bowl(2e-3, seed) + NOISE[(seed + 2) % 4][(seed + (name == "adapm")) % 3] for seed in range(6)]

    shared = evaluation_error(comparison_spec().workload)
    plain = paired_difference(losses("adapm"), losses("adamw"), shared_error=shared)
    assert plain is not None and plain.low is not None and plain.high is not None
    assert of.low == pytest.approx(plain.low - of.regret - adamw.selection_gain)
    assert of.high == pytest.approx(plain.high + of.baseline_regret + adapm.selection_gain)


@pytest.mark.parametrize(("shift", "conclusion"), [(-0.05, Conclusion.UNDECIDED), (0.05, Conclusion.WORSE)])
def test_nobody_is_better_than_a_baseline_whose_best_rate_is_at_the_edge(shift: float, conclusion: Conclusion) -> None:
    """A grid that is not tuned in a phase of its own is not extended, and knows as little of what lies beyond."""

    def outcome(name: str, lr: float, seed: int) -> float:
        own = 0.001 * NOISE[seed % 4][(seed + (name == "adapm")) % 3]
        return bowl(lr if name == "adapm" else lr / 2, seed) + own + shift * (name == "adapm")

    of = comparison_spec(optimizers=OPTIMIZERS[:2], learning_rates=(1e-3, 2e-3, 4e-3), seeds=range(5))
    adapm = row(compared(of, outcome), "adapm")
    assert adapm.conclusion is conclusion, adapm.verdict
    assert adapm.difference is not None
    assert adapm.difference.rate_is_open is (conclusion is Conclusion.UNDECIDED)
    if adapm.difference.rate_is_open:
        assert "AdamW's best learning rate, 0.004, is the highest of its grid: a better one could turn that. " in (
            adapm.verdict
        )
        assert adapm.verdict.endswith("Try higher rates for AdamW.")


def test_no_interval_is_said_to_be_wider_by_nothing() -> None:
    """All seeds alike choose the same rate, and the basin about it leaves nothing open."""
    of = comparison_spec(optimizers=OPTIMIZERS[:2], learning_rates=(1e-3, 2e-3, 4e-3), seeds=range(5))
    found = compared(of, lambda name, lr, seed: 2.3 + 0.01 * seed + 10 * abs(lr - 2e-3) * (name == "adapm") + lr)
    assert not any("0.0000" in note for note in found.notes), found.notes
    (note,) = (note for note in found.notes if note.startswith("The seeds that chose the learning rates judge them"))
    assert "That widens no interval of a difference here. With `tuning` other seeds choose" in note
    one = compared(comparison_spec(optimizers=OPTIMIZERS[:2], learning_rates=(1e-3, 2e-3), seeds=(0,)), lambda *_: 2.3)
    assert any("With one seed nobody can tell what that took off losses." in note for note in one.notes)


@pytest.mark.parametrize(
    ("rates", "words"),
    [
        ((2e-3, 2e-3), "by 0.0500 nats at learning rate 0.002 each ("),
        ((2e-3, 1e-3), "by 0.0500 nats at learning rates 0.001 for AdaPM and 0.002 for AdamW ("),
    ],
)
def test_a_verdict_on_single_rates_says_which(rates: tuple[float, float], words: str) -> None:
    """So that nobody reads it as one on tuned optimizers."""
    candidates = tuple(
        Candidate(optimizer=name, learning_rates=(lr,)) for name, lr in zip(OPTIMIZERS, rates, strict=False)
    )
    of = comparison_spec(seeds=range(3)).model_copy(update={"candidates": candidates})
    gaps = (-0.049, -0.051, -0.05)
    found = compared(of, lambda name, lr, seed: 2.3 + 0.01 * seed + gaps[seed] * (name == "adapm"))
    assert row(found, "adapm").verdict.startswith(f"Better than AdamW {words}"), row(found, "adapm").verdict
    assert not any("judge them too" in note for note in found.notes)


def test_an_edge_is_said_of_the_baseline_first() -> None:
    found = compared(spec(rates=(2e-3, 4e-3, 8e-3)), lambda name, lr, seed: bowl(lr, seed))
    assert all(each.edge_of_grid for each in found.rows)
    at_edge = [note for note in found.notes if "edge of" in note]
    assert at_edge[0].startswith("The best learning rate of AdamW, the baseline, lies at the edge of its grid")
    assert at_edge[1].startswith("Best learning rate at the edge of the grid")
    assert "outside: AdamW (0.002; try lower ones)" in at_edge[1]


def test_short_validation_text_is_said_where_it_rivals_the_differences() -> None:
    gaps = (0.001, -0.002, 0.002, -0.001, 0.001)
    of = comparison_spec(optimizers=OPTIMIZERS[:2], seeds=range(5))

    def told(sequences: int) -> bool:
        found = compared(
            evaluated_on(of, sequences), lambda name, lr, seed: 2.3 + 0.01 * seed + gaps[seed] * (name == "adapm")
        )
        return any(note.startswith("Evaluated on ") for note in found.notes)

    assert told(64) and not told(65_536)


def test_the_interval_holds_the_error_of_the_validation_text() -> None:
    """64 sequences of 128 tokens: 0.5 / sqrt(8192) nats, which no seed shows."""
    gaps = (0.001, -0.002, 0.002, -0.001, 0.001)
    of = comparison_spec(optimizers=OPTIMIZERS[:2], seeds=range(5))

    def outcome(name: str, lr: float, seed: int) -> float:
        return 2.3 + 0.01 * seed + gaps[seed] * (name == "adapm")

    short, long = (row(compared(each, outcome), "adapm") for each in (of, evaluated_on(of)))
    assert short.difference is not None and long.difference is not None
    assert short.difference.evaluation_error == pytest.approx(0.5 / math.sqrt(64 * 128))
    expected = reference.simultaneous_difference(list(gaps), [0.0] * 5, 1, short.difference.evaluation_error)
    assert (short.difference.mean, short.difference.low, short.difference.high) == pytest.approx(expected, rel=1e-6)
    assert (long.conclusion, short.conclusion) == (Conclusion.AS_GOOD, Conclusion.UNDECIDED)


# How a run of a random experiment ends: the same loss often, by chance, by little or far, or not with one at all.
ENDS: st.SearchStrategy[str | float] = st.one_of(
    st.sampled_from([2.3, 2.3, 2.31, 2.2999, "diverged", "failed", "open"]),
    st.floats(2.2, 2.4),
    st.floats(2.3 - 1e-6, 2.3 + 1e-6),
    st.floats(0.1, 1e6),
)


@settings(max_examples=150, deadline=None)
@given(st.data(), st.integers(2, 5), st.integers(1, 6), st.booleans())
def test_verdict_interval_and_p_value_say_the_same(data: st.DataObject, rows: int, seeds: int, unequal: bool) -> None:
    """As data and as printed, whatever an experiment comes to."""
    optimizers = ("adamw", "adapm", "adapm-mini", "lion", "muon")[:rows]
    of = comparison_spec(optimizers=optimizers, learning_rates=(1e-3,), seeds=range(seeds))
    if unequal:
        first = of.candidates[0].model_copy(update={"learning_rates": (1e-3, 2e-3)})
        of = of.model_copy(update={"candidates": (first, *of.candidates[1:]), "unequal_grids": True})
    shift = {name: data.draw(st.sampled_from([0.0, 0.0, 0.05, -0.05])) for name in optimizers}

    def outcome(name: str, _lr: float, _seed: int) -> Outcome:
        end = data.draw(ENDS)
        words: dict[str, Outcome] = {"diverged": diverged(), "failed": RunStatus.FAILED, "open": None}
        return words[end] if isinstance(end, str) else float(end) + shift[name]

    for each in compared(of, outcome).rows:
        printed = re.search(r"interval ([-+.\de]+) to ([-+.\de]+), n = \d+, p (<|=) ([.\de-]+)", each.verdict)
        says = each.verdict.split()[0] if each.verdict.split()[0] in ("Better", "Worse") else None
        if printed:
            low, high, _, p_value = printed.groups()
            leaves_zero_out = float(low) > 0 or float(high) < 0
            assert leaves_zero_out == (float(p_value) < 0.05) == (says is not None), each.verdict
        else:
            assert says is None, each.verdict
        decided = each.conclusion in (Conclusion.BETTER, Conclusion.WORSE)
        assert decided == (says is not None)
        found = each.difference
        if found is None or found.p_value is None or found.low is None or found.high is None:
            assert not decided and (found is None or (found.p_value, found.low, found.high) == (None, None, None))
            continue
        assert decided == (found.low > 0 or found.high < 0) == (found.p_value < 0.05)
        lies_within = found.low > -0.01 and found.high < 0.01
        assert (each.conclusion is Conclusion.AS_GOOD) == (lies_within and found.low <= 0 <= found.high)
        assert each.verdict.startswith("As good as") == (each.conclusion is Conclusion.AS_GOOD)
        assert not decided or (each.conclusion is Conclusion.BETTER) == (found.mean < 0) == (found.high < 0)


@settings(max_examples=60, deadline=None)
@given(st.data(), st.integers(3, 5), st.integers(2, 6))
def test_all_pairs_say_of_each_pair_what_their_interval_says(data: st.DataObject, rows: int, seeds: int) -> None:
    optimizers = ("adamw", "adapm", "adapm-mini", "lion", "muon")[:rows]
    of = comparison_spec(optimizers=optimizers, learning_rates=(1e-3,), seeds=range(seeds))
    of = of.model_copy(update={"all_pairs": True})
    shift = {name: data.draw(st.sampled_from([0.0, 0.0, 0.05, -0.05])) for name in optimizers}
    losses: dict[tuple[str, int], float] = {}

    def outcome(name: str, _lr: float, seed: int) -> Outcome:
        end = data.draw(ENDS)
        words: dict[str, Outcome] = {"diverged": diverged(), "failed": RunStatus.FAILED, "open": None}
        if isinstance(end, str):
            return words[end]
        losses[name, seed] = float(end) + shift[name]
        return losses[name, seed]

    found = compared(of, outcome)
    named = {frozenset((each.candidate, each.other)) for each in found.pairs}
    assert len(named) == len(found.pairs) == rows * (rows - 1) // 2
    for each in found.pairs:
        difference = each.difference
        decided = each.conclusion in (Conclusion.BETTER, Conclusion.WORSE)
        if each.other == found.baseline:
            of_row = row(found, each.candidate)
            assert (difference, each.conclusion) == (of_row.difference, of_row.conclusion)
        if difference is None or difference.p_value is None or difference.low is None or difference.high is None:
            assert not decided
            continue
        assert difference.comparisons == len(found.pairs)
        common = [seed for seed in range(seeds) if (each.candidate, seed) in losses and (each.other, seed) in losses]
        slow = reference.simultaneous_difference(
            [losses[each.candidate, seed] for seed in common],
            [losses[each.other, seed] for seed in common],
            len(found.pairs),
            difference.evaluation_error,
        )
        assert (difference.mean, difference.low, difference.high) == pytest.approx(slow, rel=1e-6, abs=1e-9)
        assert decided == (difference.low > 0 or difference.high < 0) == (difference.p_value < 0.05)
        assert not decided or (each.conclusion is Conclusion.BETTER) == (difference.high < 0)
        assert each.verdict.split()[0] == each.conclusion.value.capitalize() or not decided


def test_all_pairs_hold_together_and_equal_candidates_are_seldom_told_apart() -> None:
    """400 experiments of four equal candidates on five seeds: any of six pairs decided in at most 5 %, within three
    standard errors (0.033); and without the request nothing is said of them."""
    of = comparison_spec(optimizers=("adamw", "adapm", "adapm-mini", "lion"), seeds=range(5))
    of = evaluated_on(of.model_copy(update={"all_pairs": True}))
    random = np.random.default_rng(7)
    wrong = 0
    for _ in range(400):
        noise = random.normal(0, 0.0035, (4, 5))
        losses = {candidate.name(): own for candidate, own in zip(of.candidates, noise, strict=True)}

        def outcome(name: str, _lr: float, seed: int, losses: dict[str, np.ndarray] = losses) -> Outcome:
            return 2.3 + float(losses[name][seed])

        found = compare(*records(of, outcome))
        wrong += any(each.conclusion in (Conclusion.BETTER, Conclusion.WORSE) for each in found.pairs)
    assert wrong / 400 <= 0.05 + 0.033
    assert compared(spec(), lambda name, lr, seed: bowl(lr, seed)).pairs == ()


def test_intervals_hold_together_and_equal_candidates_are_seldom_told_apart() -> None:
    """1,000 experiments of four candidates that share their baseline's chance: in at least 95 % all intervals hold the
    truth, and in at most 5 % one of the two equal candidates is called better or worse, within three standard errors
    (0.021); with normal noise, with heavy tails, and with spreads that differ."""
    random = np.random.default_rng(3)
    truth, spreads, experiments = np.array([0.0, 0.01, -0.02, 0.0]), np.array([0.3, 1.0, 1.0, 3.0]), 1000
    for seeds, tailed in ((2, False), (3, True), (5, False), (10, True)):
        draw = (lambda shape: random.standard_t(3, shape)) if tailed else random.standard_normal
        baselines = draw((experiments, seeds))
        noise = spreads[:, None] * draw((experiments, 4, seeds))
        wrong = missed = 0
        for baseline, added in zip(baselines, noise, strict=True):
            found = [
                paired_difference((baseline + each + by).tolist(), baseline.tolist(), len(truth))
                for each, by in zip(added, truth, strict=True)
            ]
            bounds = [
                (each.low, each.high) for each in found if each and each.low is not None and each.high is not None
            ]
            assert len(bounds) == len(truth)
            missed += any(not low <= by <= high for (low, high), by in zip(bounds, truth, strict=True))
            wrong += any(each is not None and each.decides() for each in (found[0], found[3]))
        assert missed / experiments <= 0.05 + 0.021, (seeds, tailed)
        assert wrong / experiments <= 0.05 + 0.021, (seeds, tailed)


def test_two_seeds_are_compared_and_said_to_be_few() -> None:
    found = compared(spec(seeds=2), lambda name, lr, seed: bowl(lr, seed) - (0.01 + 0.02 * seed) * (name == "adapm"))
    assert row(found, "adapm").verdict.startswith("No difference to AdamW shown")
    assert "2 seeds: fewer than 3 cannot show small differences." in found.notes


def test_one_seed_shows_no_difference() -> None:
    found = compared(spec(seeds=1), lambda name, lr, seed: bowl(lr, seed) - 1.0 * (name == "adapm"))
    expected = "No difference shown: 1.0000 nats below AdamW on the one common seed, and one seed proves nothing."
    assert row(found, "adapm").verdict == expected
    assert row(found, "adamw").verdict == "The baseline: 2.3000 nats (n = 1) at lr 0.002."


def test_equal_losses_are_said_to_be_equal() -> None:
    found = compared(spec(), lambda name, lr, seed: bowl(lr, seed))
    assert row(found, "adapm").verdict == "No difference shown: the same loss on all 3 common seeds."


def diverged(loss: float | None = None) -> Result:
    return result(final_val_loss=loss, verdict=Verdict.DIVERGED)


def test_the_mean_over_survivors_does_not_win() -> None:
    """At 4e-3 two seeds reach 1.0 and one diverges: that rate ranks behind every stable one."""

    def outcome(_name: str, lr: float, seed: int) -> Outcome:
        if lr == 4e-3:
            return diverged() if seed == 0 else 1.0
        return bowl(lr, seed)

    found = compared(spec(), outcome)
    assert [each.best_lr for each in found.rows] == [2e-3] * 3
    assert row(found, "adapm").learning_rates[2].diverged == 1
    assert "AdaPM: 1 run diverged; rates with such a seed rank last." in found.notes


def test_a_candidate_that_is_nowhere_stable_ranks_behind_the_stable_ones_and_is_not_compared() -> None:
    found = compared(
        spec(), lambda name, lr, seed: (diverged() if seed == 0 else 1.0) if name == "adapm" else bowl(lr, seed)
    )
    assert [each.candidate for each in found.rows] == ["adamw", "adapm-mini", "adapm"]
    last = found.rows[-1]
    assert last.difference is None
    assert last.verdict == "No stable learning rate: at the best one, 0.001, 1 of 3 seeds diverged."


def test_nobody_is_compared_with_an_unstable_baseline() -> None:
    found = compared(
        spec(), lambda name, lr, seed: (diverged(9.0) if seed == 0 else 1.0) if name == "adamw" else bowl(lr, seed)
    )
    assert row(found, "adapm").difference is None
    assert row(found, "adapm").verdict == "Not compared: 1 of 3 seeds diverged for AdamW, the baseline."


def test_candidates_without_a_finite_loss_come_last_and_keep_their_sizes() -> None:
    out_of_memory = result(final_val_loss=None, verdict=Verdict.OUT_OF_MEMORY)
    found = compared(
        spec(),
        lambda name, lr, seed: bowl(lr, seed) if name == "adapm-mini" else diverged() if seed else out_of_memory,
    )
    assert [each.candidate for each in found.rows] == ["adapm-mini", "adamw", "adapm"]
    last = found.rows[-1]
    assert (last.best_lr, last.val_loss, last.edge_of_grid) == (None, None, False)
    assert last.optimizer_state_bytes == 8_000_000
    assert last.verdict == "No finite validation loss at any learning rate: 6 diverged, 3 ran out of memory."
    baseline_lost = "Not compared: AdamW, the baseline, has no finite validation loss."
    assert found.rows[0].verdict == baseline_lost


def test_one_rate_is_no_grid_with_an_edge() -> None:
    found = compared(spec(rates=(2e-3,)), lambda name, lr, seed: bowl(lr, seed))
    assert not any(each.edge_of_grid for each in found.rows)
    assert not any("edge" in note for note in found.notes)


def test_runs_that_are_called_spikes_in_a_grid_are_named() -> None:
    """The losses of a grid are not what its runs ended with where one of them is taken for a spike."""
    noise = {0: 0.0, 1: 0.003, 2: -0.002}

    def outcome(name: str, lr: float, seed: int) -> Outcome:
        return bowl(lr, seed) + noise[seed] * math.log2(lr / 1e-3) + (name == "adapm" and (lr, seed) == (4e-3, 1))

    found = compared(spec(), outcome)
    of = {rate.lr: rate.spiked_seeds for rate in row(found, "adapm").learning_rates}
    assert {lr: seeds for lr, seeds in of.items() if seeds} == {4e-3: (1,)}
    (note,) = (each for each in found.notes if "spiked" in each and "grid" in each)
    assert note.startswith("Runs of a grid that spiked: AdaPM at lr 0.004, seed 1. ")


def judged_notes(loss: Callable[[float, int], float], rates: tuple[float, ...], **tuning: int) -> list[str]:
    """What is said of the learning rates of one optimizer that was tuned."""
    of = comparison_spec(optimizers=("adamw",), learning_rates=rates, seeds=range(3), tuning=Tuning(**tuning))
    found = compare(*tuned_records(of, lambda run: loss(run.spec.optimizer.lr, run.spec.seed)))
    return [note for note in found.notes if "rate" in note]


def test_a_rate_that_is_judged_instead_of_the_best_one_is_told() -> None:
    """0.64 spiked on two of three tuning seeds: nobody was told why 0.213 was judged where 0.32 was best."""

    def cliff(lr: float, seed: int) -> float:
        falling = 2.3 - 0.01 * math.log2(lr) + 0.001 * ((round(100 * lr) + seed) % 4)
        return falling + (lr > 0.6) * {1001: 0.6, 1002: 0.9}.get(seed, 0.0)

    chosen, spiked, judged = judged_notes(cliff, (0.08, 0.16, 0.32, 0.64), extend_grid=0)
    assert chosen.startswith("Learning rates were chosen on seeds 1001, 1002, 1003")
    assert spiked.startswith("Runs of a grid that spiked: AdamW at lr 0.64, seeds 1001, 1002. ")
    assert spiked.endswith("a rate at which most runs spiked ranks last, as one at which a run diverged.")
    assert judged == (
        "Judged at another rate than the best one of its grid: AdamW at 0.213 instead of 0.32, a step back from 0.64, "
        "where runs diverged, spiked or scattered."
    )
    between = judged_notes(lambda lr, seed: 2.3 + 0.05 * math.log2(lr / 2.3e-3) ** 2, (1e-3, 2e-3, 4e-3), extend_grid=0)
    assert not any("instead of" in note for note in between), "between two rates of its grid is where a minimum lies"


def test_a_rate_that_is_alone_is_extended_or_said_to_be_untuned() -> None:
    """It was said to have been chosen."""

    def loss(lr: float, seed: int) -> float:
        return 2.3 + 0.05 * math.log2(lr / 2e-3) ** 2 + 0.001 * (seed % 7)

    chosen, extended, *_ = judged_notes(loss, (1e-3,))
    assert chosen.startswith("Learning rates were chosen")
    assert extended.startswith("Learning rates added beyond an edge of the grid")
    assert judged_notes(loss, (1e-3,), extend_grid=0) == ["Not tuned, for no second learning rate was tried: AdamW."]


def test_a_half_finished_comparison_prefers_complete_rates_and_says_that_it_may_change() -> None:
    """The first seed at 4e-3 looks better, but 2e-3 has all of its seeds."""

    def outcome(_name: str, lr: float, seed: int) -> Outcome:
        if lr == 4e-3:
            return 1.0 if seed == 0 else None
        return bowl(lr, seed)

    found = compared(spec(), outcome)
    assert not found.complete
    assert found.rows[0].best_lr == 2e-3
    assert found.notes[0] == "6 of 27 runs have not ended: everything here may still change."


def test_who_ranks_behind_a_higher_mean_for_want_of_seeds_is_named() -> None:
    """Whoever has all seeds stands first, though another one's mean is lower so far."""
    lower = {"adamw": 0.0, "adapm": -0.2, "adapm-mini": -0.1}

    def outcome(name: str, lr: float, seed: int) -> Outcome:
        return None if name == "adapm" and seed == 2 else bowl(lr, seed) + lower[name]

    found = compared(spec(), outcome)
    assert [each.candidate for each in found.rows] == ["adapm-mini", "adamw", "adapm"]
    (note,) = (note for note in found.notes if "higher means" in note)
    assert note == "AdaPM ranks behind higher means: candidates with all of their seeds rank first."
    assert not any("higher means" in note for note in compared(spec(), lambda _, lr, seed: bowl(lr, seed)).notes)


def test_nothing_at_all_is_a_table_without_figures() -> None:
    found = compared(spec(), lambda *_run: None)
    assert [each.verdict for each in found.rows] == ["No run has ended yet."] * 3
    assert (found.device, found.complete) == (None, False)


def test_failed_and_cancelled_runs_are_told() -> None:
    states = {0: RunStatus.FAILED, 1: RunStatus.CANCELLED}
    found = compared(
        spec(), lambda name, lr, seed: states.get(seed, bowl(lr, seed)) if name == "adapm" else bowl(lr, 0)
    )
    assert found.complete
    assert "3 runs failed and without a result." in found.notes
    assert "3 runs cancelled and without a result." in found.notes
    assert any(note.startswith("Seeds were cancelled.") for note in found.notes), "who cut their number?"
    assert "AdaPM and AdamW are paired over 1 common seed only." in found.notes


def test_seeds_that_do_not_meet_are_not_compared() -> None:
    outcome = {"adapm": 0, "adamw": 1, "adapm-mini": 1}
    found = compared(spec(), lambda name, lr, seed: bowl(lr, seed) if seed == outcome[name] else RunStatus.FAILED)
    assert row(found, "adapm").verdict == "Not compared: no seed has a loss both here and for AdamW, the baseline."


def test_peak_memory_is_that_of_tensors_on_every_device() -> None:
    """By the allocator on a GPU, by the recorded steps on a CPU; never what the process takes."""
    on_gpu = compared(spec(), lambda *_run: result(device="cuda", allocator_bytes=7, peak_bytes=16_000_000))
    assert {(each.peak_memory_bytes, each.peak_memory_kind) for each in on_gpu.rows} == {(7, "tensors")}
    assert on_gpu.device == "H200"
    on_cpu = compared(spec(), lambda name, lr, seed: result(peak_bytes=45_000_000 + seed))
    assert {(each.peak_memory_bytes, each.peak_memory_kind) for each in on_cpu.rows} == {(45_000_002, "tensors")}
    mixed = compared(
        spec(), lambda name, lr, seed: result(device="cuda", allocator_bytes=7) if name == "adapm" else result()
    )
    assert mixed.device == "H200, cpu"
    assert "Measured on several kinds of device: times and memory do not compare." in mixed.notes


def test_a_record_without_the_tensors_peak_says_why() -> None:
    """One of before, and one whose memory ran out before its first step: neither shows the host's memory instead."""
    lost = result(final_val_loss=None, verdict=Verdict.OUT_OF_MEMORY, steps=0)
    found = compared(spec(), lambda name, lr, seed: result() if name == "adapm" else lost)
    assert {each.peak_memory_bytes for each in found.rows} == {None}
    assert "AdaPM has no peak memory: the tensors' peak was not measured yet in that version." in found.notes
    assert "AdaPM-mini has no peak memory: no step was recorded." in found.notes


def test_a_tiny_model_on_a_cpu_is_no_evidence_for_large_ones_or_gpus() -> None:
    found = compared(spec(), lambda name, lr, seed: bowl(lr, seed))
    assert found.device == "cpu"
    assert "A model of 1.0 M parameters: no evidence for large models." in found.notes
    assert "Measured on a CPU: device-hours are hours of a CPU run, not GPU-hours." in found.notes


def test_unequal_grids_and_labels_are_shown() -> None:
    base = spec()
    candidates = (
        Candidate(optimizer="adamw", learning_rates=(1e-3,)),
        Candidate(optimizer="adamw", learning_rates=(1e-3, 2e-3), label="AdamW, long grid"),
    )
    found = compared(
        base.model_copy(update={"candidates": candidates, "unequal_grids": True}), lambda name, lr, seed: bowl(lr, seed)
    )
    assert [each.title for each in found.rows] == ["AdamW, long grid", "AdamW"]
    assert "The candidates have grids of different sizes: they are not tuned equally." in found.notes
    verdict = row(found, "AdamW, long grid").verdict
    assert verdict.startswith("Not tuned equally: 0.0050 nats below AdamW")
    assert verdict.endswith("with 2 learning rates against 1; no verdict.")


def test_different_data_is_told() -> None:
    found = compared(
        spec(), lambda name, lr, seed: result().model_copy(update={"data_hash": name}) if seed else result()
    )
    assert "The runs did not read the same data: their losses do not compare." in found.notes


def with_micro_batch(sizes: dict[str, int]) -> Comparison:
    return compared(
        spec(),
        lambda name, lr, seed: result(final_val_loss=bowl(lr, seed)).model_copy(
            update={"micro_batch_sequences": sizes[name]}
        ),
    )


def test_memory_of_different_micro_batches_is_not_mixed_in_silence() -> None:
    """Nor that of a smaller one than was asked for; where all took what was asked for, nothing is said."""
    assert not [note for note in with_micro_batch(dict.fromkeys(OPTIMIZERS, 8)).notes if "micro-batch" in note]
    mixed = with_micro_batch({"adamw": 4, "adapm": 8, "adapm-mini": 8})
    (note,) = [note for note in mixed.notes if "micro-batch" in note]
    assert "AdamW: 4" in note and "AdaPM: 8" in note and "memory and times do not compare" in note
    (note,) = [note for note in with_micro_batch(dict.fromkeys(OPTIMIZERS, 4)).notes if "micro-batch" in note]
    assert note == "All runs took micro-batches of 4 instead of 8, for which memory did not suffice."


def test_who_is_at_the_edge_of_its_grid_is_not_shown_to_be_behind_the_front() -> None:
    """AdaPM-mini gets lower up to its last rate and is not told apart from AdamW, which AdaPM beats by far: that one's
    interval is no bound for what lies beyond the edge."""
    noise = {"adamw": (0, 0.012, -0.009), "adapm": (0.004, -0.01, 0.006), "adapm-mini": (0.01, -0.004, 0.007)}

    def outcome(name: str, lr: float, seed: int) -> Outcome:
        if name == "adapm-mini":
            return 2.3 + 0.02 * math.log2(4e-3 / lr) + noise[name][seed]
        return 2.3 - (name == "adapm") + 0.004 * abs(math.log2(lr / 2e-3)) + noise[name][seed]

    found = row(compared(evaluated_on(spec()), outcome), "adapm-mini")
    assert found.difference is not None and found.difference.low is None and found.difference.high is not None
    assert found.difference.p_value is None and found.verdict.startswith("No verdict: 0.0130 nats above AdamW")
    assert found.edge_of_grid and not found.on_pareto_front
    assert not found.pareto_front_shown, "a lower loss beyond the edge would put it on the front"


def test_a_speed_up_covers_what_the_choice_of_the_rate_took_off_the_loss() -> None:
    """Of an untuned grid: as the interval of the losses does, that of the speed-up reaches as far as if either's loss
    were higher by what the choices of the other seeds lose."""
    of = evaluated_on(comparison_spec(optimizers=OPTIMIZERS[:2], learning_rates=(1e-3, 2e-3, 4e-3), seeds=range(5)))
    random = np.random.default_rng(27)
    losses = {
        (name, lr, seed): level + 0.008 * (lr != 2e-3) + 0.015 * random.standard_normal()
        for name, level in (("adamw", 2.5), ("adapm", 2.0))
        for lr in (1e-3, 2e-3, 4e-3)
        for seed in range(5)
    }
    experiment, runs = records(of, lambda *run: float(losses[run]))
    found = compare(experiment, runs, {run.id: falling(run, 100_000) for run in runs})
    adamw, adapm = row(found, "adamw"), row(found, "adapm")
    assert adapm.time_to_target is not None and (told := adapm.time_to_target.speed_up) is not None
    assert adapm.difference is not None and adapm.best_lr is not None and adamw.best_lr is not None
    assert adapm.selection_gain and adapm.selection_gain > 0.003 and adamw.selection_gain and told.low and told.high
    pairs = [(losses["adapm", adapm.best_lr, seed], losses["adamw", adamw.best_lr, seed]) for seed in range(5)]

    def logs(higher: float) -> list[float]:
        """The ratios, where AdaPM's curve, which falls on a line from 5, lies so much higher."""
        return [math.log((5 - mine) / (5 - theirs + higher)) for mine, theirs in pairs]

    by_seeds = mean_interval(logs(0.0))
    assert by_seeds is not None and by_seeds.low is not None and by_seeds.high is not None
    low = by_seeds.low - by_seeds.mean + fmean(logs(adapm.difference.baseline_regret + adapm.selection_gain))
    high = by_seeds.high - by_seeds.mean + fmean(logs(-adapm.difference.regret - adamw.selection_gain))
    assert (math.log(told.low), math.log(told.high)) == pytest.approx((low, high), rel=1e-3)


def test_what_a_lost_attempt_took_is_no_time_of_the_optimizers() -> None:
    """AdaPM's machine was lost half-way, and half of the steps were done twice: its time to the loss is the same."""
    of = evaluated_on(comparison_spec(optimizers=OPTIMIZERS[:2], seeds=range(3)))
    experiment, runs = records(of, lambda name, _lr, seed: 3.0 + 0.001 * seed - 0.01 * (name == "adapm"))
    curves = {run.id: falling(run) for run in runs}

    def hours(device_seconds: float) -> OpenInterval:
        took = tuple(
            run.model_copy(
                update={
                    "device_seconds": device_seconds if run.candidate == "adapm" else 360.0,
                    "result": run.result.model_copy(update={"productive_seconds": 350.0}),
                }
            )
            for run in runs
            if run.result
        )
        time = row(compare(experiment, took, curves), "adapm").time_to_target
        assert time is not None and time.device_hours is not None
        return time.device_hours

    assert hours(360.0) == hours(540.0)


@pytest.mark.parametrize("bend", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("evaluations", [1, 3, 5, 10, 40])
def test_a_speed_up_holds_what_nobody_saw_between_two_evaluations(evaluations: int, bend: float) -> None:
    """AdaPM runs down AdamW's own curve 1.6 times as fast, be that steep at first, straight, or steep at the end."""
    of = evaluated_on(comparison_spec(optimizers=OPTIMIZERS[:2], seeds=range(3)))

    def loss(name: str, seed: int, step: float) -> float:
        # In steps of AdamW's: from 5 down to 3 at the end, and on.
        at = step / 640.0 * (1.6 + 0.005 * (seed - 1) if name == "adapm" else 1.0)
        return float(5.0 - 2.0 * at**bend + 0.001 * seed)

    experiment, runs = records(of, lambda name, _lr, seed: loss(name, seed, 640.0))
    steps = tuple(640.0 * place / evaluations for place in range(evaluations + 1))
    curves = {
        run.id: ValidationCurve(steps=steps, losses=tuple(loss(run.candidate, run.seed, each) for each in steps))
        for run in runs
    }
    time = row(compare(experiment, runs, curves), "adapm").time_to_target
    assert time is not None and (told := time.speed_up) is not None and told.low is not None
    assert told.low <= 1.6 <= (told.high or math.inf)
    assert (told.mean is None) == (told.high is None) == (evaluations == 1), "the last one alone tells no time"


def test_a_baseline_that_overfits_makes_nobody_fast() -> None:
    """Both are below the baseline's final loss from half-way on, and rise; AdaPM rises less."""
    of = evaluated_on(comparison_spec(optimizers=OPTIMIZERS[:2], seeds=range(5)))

    def loss(name: str, seed: int, share: float) -> float:
        fall = 5.0 - 4.0 * share + 0.001 * ((seed + 2 * (name == "adapm") * seed * seed) % 3)
        return fall if share <= 0.55 else fall + (4.0 + (0.4 if name == "adamw" else 0.3)) * (share - 0.55)

    experiment, runs = records(of, lambda name, _lr, seed: loss(name, seed, 1.0))
    shares = tuple(place / 100 for place in range(101))
    curves = {
        run.id: ValidationCurve(
            steps=tuple(10 * each for each in shares),
            losses=tuple(loss(run.candidate, run.seed, each) for each in shares),
        )
        for run in runs
    }
    adapm = row(compare(experiment, runs, curves), "adapm")
    assert adapm.conclusion is Conclusion.BETTER
    assert adapm.time_to_target is not None
    assert (told := adapm.time_to_target.speed_up) is not None
    assert told.mean == pytest.approx(1.0, rel=0.02)
    assert told.low is not None
    assert told.low < 1


def test_a_speed_up_is_no_surer_than_the_losses_that_it_is_read_from() -> None:
    """Seeds agree to a thousandth of a nat, and other validation text would move the difference by five: 0.1 nats a
    factor of two in tokens make that 4 % of the ratio. Less text, wider; and what tuning left open is in it, too."""

    def speed_up(of: ComparisonSpec) -> OpenInterval:
        experiment, runs = records(of, lambda name, _lr, seed: loss(name, seed, 640.0))
        steps = tuple(10.0 * 2 ** (place / 100) for place in range(601))
        curves = {
            run.id: ValidationCurve(steps=steps, losses=tuple(loss(run.candidate, run.seed, each) for each in steps))
            for run in runs
        }
        time = row(compare(experiment, runs, curves), "adapm").time_to_target
        assert time is not None and time.speed_up is not None
        return time.speed_up

    def loss(name: str, seed: int, step: float) -> float:
        return (
            3
            - 0.1 * math.log2(step * (2 if name == "adapm" else 1))
            + 0.001 * ((seed + 2 * (name == "adapm") * seed * seed) % 3)
        )

    of = comparison_spec(optimizers=OPTIMIZERS[:2], learning_rates=(2e-3,), seeds=range(5))
    told, exact = speed_up(of), speed_up(evaluated_on(of))
    assert told.mean == exact.mean == pytest.approx(2, rel=0.05)
    assert told.mean is not None
    error = 2 ** (1.8 * evaluation_error(of.workload) / 0.1)  # 1.96, less what lines between evaluations bend
    assert told.high is not None and told.low is not None and exact.high is not None and exact.low is not None
    assert told.high / told.mean > error and told.mean / told.low > error
    assert exact.low > told.low and exact.high < told.high


@pytest.mark.parametrize("huge", [1e99, 1e101, 1e155, 1e308])
def test_a_loss_that_cannot_be_squared_is_none(huge: float) -> None:
    """A regression's run may end so, in float64."""
    of = comparison_spec(optimizers=OPTIMIZERS[:2], learning_rates=(1e-3, 2e-3, 4e-3), seeds=range(3), tuning=Tuning())

    def ended(planned: PlannedRun) -> Outcome:
        if planned.candidate == OPTIMIZERS[1] and planned.spec.seed == 1:
            return result(final_val_loss=huge, verdict=Verdict.DIVERGED)
        return 3.0 + 100 * abs(planned.spec.optimizer.lr - 2e-3) + 0.01 * planned.spec.seed % 0.007

    experiment, runs = tuned_records(of, ended)
    found = compare(experiment, runs)
    assert row(found, OPTIMIZERS[1]).conclusion is Conclusion.UNSTABLE
    assert performance_profiles([(experiment, runs, {run.id: falling(run) for run in runs})]).workloads == 1
