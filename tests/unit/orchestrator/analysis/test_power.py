"""What a design can show, held against scipy.stats' noncentral t and against simulated experiments."""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from benchmarks import verdicts as grids
from benchmarks.searched_verdicts import World, conducted, simulate
from benchmarks.verdicts import FLAT, PAIRED_SPREAD, STEEP
from dashboards.text.words import power_details, power_text
from orchestrator.analysis import power
from orchestrator.analysis.comparison import compare, comparison_spec
from orchestrator.analysis.power import (
    MOST_SEEDS,
    POWER,
    EarlierCandidate,
    FixedDesign,
    Noise,
    SequentialDesign,
    curvature,
    design_power,
    detectable_difference,
    known_losses,
    least_seeds,
    limit_of,
    noise,
    openings_of,
    openness,
    openness_of_search,
    openness_of_untuned,
)
from orchestrator.analysis.sequential import FUTILE, chances_of_verdict, looks
from orchestrator.analysis.statistics import paired_difference
from orchestrator.kinds.comparison import ComparisonSpec, KeptRates, Sequential
from orchestrator.kinds.tuning import Tuning
from orchestrator.records import SIGNIFICANCE, Conclusion, ExperimentRecord, ExperimentWithRuns, RunRecord
from orchestrator.specs.preview import DesignPower, PowerLimit
from tests.factories.comparison import experiment_record, records, run_record
from tests.factories.stores import comparison_spec as made_comparison
from tests.factories.stores import result
from worker.records.result import Verdict


@pytest.mark.parametrize(
    ("seeds", "difference", "comparisons"), [(3, 2.0, 1), (5, 2.0, 4), (10, 1.0, 1), (40, 0.4, 2), (200, 0.2, 9)]
)
def test_power_is_that_of_the_noncentral_t(seeds: int, difference: float, comparisons: int) -> None:
    limit = stats.t.ppf(1 - SIGNIFICANCE / comparisons / 2, seeds - 1)
    expected = stats.nct.sf(limit, seeds - 1, difference * np.sqrt(seeds))
    assert FixedDesign(noise_sd=1.0, comparisons=comparisons).is_shown(difference, seeds) == pytest.approx(
        expected, abs=1e-6
    )


@pytest.mark.parametrize(("difference", "comparisons"), [(2.0, 1), (1.5, 3), (0.8, 1)])
def test_the_advised_seeds_are_those_of_simulated_experiments_within_one(difference: float, comparisons: int) -> None:
    """The product's own test is run on 4,000 experiments for each number of seeds around the advice."""
    advised = least_seeds(lambda n: FixedDesign(noise_sd=1.0, comparisons=comparisons).is_shown(difference, n))
    assert advised is not None
    random = np.random.default_rng(0)

    def shown(seeds: int) -> float:
        draws = difference + random.standard_normal((4_000, seeds))
        found = [paired_difference(each.tolist(), [0.0] * seeds, comparisons) for each in draws]
        return float(np.mean([each is not None and each.decides() for each in found]))

    assert shown(advised + 1) > POWER - 0.01
    assert shown(advised - 2) < POWER + 0.01


@given(st.floats(1e-4, 1e2), st.integers(2, 60), st.integers(1, 10))
def test_seeds_and_differences_are_inverses(noise_sd: float, seeds: int, comparisons: int) -> None:
    design = FixedDesign(noise_sd=noise_sd, comparisons=comparisons)
    least = detectable_difference(design, seeds)
    assert least is not None
    assert design.is_shown(least, seeds) == pytest.approx(POWER, abs=1e-6)
    needed = least_seeds(lambda n: design.is_shown(least * 1.0001, n))
    assert needed is not None
    assert needed <= seeds
    assert design.is_shown(least, seeds - 1) < POWER


@pytest.mark.parametrize("first", [3, 5])
def test_a_sequential_design_shows_and_costs_what_simulated_experiments_do(first: int) -> None:
    """400 experiments each, looked at by the product's own interval and chance of a verdict."""
    most, noise_sd, margin = 8, 0.005, 0.01
    design = SequentialDesign(
        design=FixedDesign(noise_sd=noise_sd), sequential=Sequential(first_seeds=first), most=most, margin=margin
    )
    least = detectable_difference(design, most)
    at_once = detectable_difference(design.design, most)
    assert least is not None and at_once is not None and at_once < least < 1.5 * at_once
    random, levels = np.random.default_rng(5), looks(first, most, SIGNIFICANCE)

    def outcome(difference: float) -> tuple[bool, int]:
        drawn = (random.normal(-difference, noise_sd, most)).tolist()
        for seeds in range(first, most + 1):
            found = paired_difference(drawn[:seeds], [0.0] * seeds, looks=levels)
            assert found is not None
            found = found.model_copy(update={"margin": margin})
            if found.decides() or found.is_within_margin():
                return found.is_better(), seeds
            error = float(np.std(drawn[:seeds], ddof=1)) / seeds**0.5
            if seeds < most:
                (chance,) = chances_of_verdict(found.mean, error, seeds, most, levels[most].level, margin=margin)
                if chance < FUTILE:
                    return False, seeds
        return False, most

    shown = np.mean([outcome(least)[0] for _ in range(400)])
    assert shown == pytest.approx(POWER, abs=0.07), "three standard errors"
    used = float(np.mean([outcome(0.0)[1] for _ in range(400)]))
    assert design.expected_runs(2) == pytest.approx(2 * used, abs=0.6)
    assert design.expected_runs(4) > 4 * used, "the baseline ends with the last of the others"


def test_what_cannot_be_shown_is_none() -> None:
    design = FixedDesign(noise_sd=1.0)
    assert detectable_difference(design, 1) is None
    assert least_seeds(lambda n: design.is_shown(1e-6, n)) is None
    assert least_seeds(lambda n: design.is_shown(1.0, n)) is not None
    short = FixedDesign(noise_sd=0.001, evaluation_error=0.008)
    assert least_seeds(lambda n: short.is_within(0.01, n)) is None, "no number of seeds makes the text longer"
    assert MOST_SEEDS >= 100


@pytest.mark.parametrize(("margin", "shared"), [(1.5, 0.0), (2.0, 0.3)])
def test_as_good_within_a_margin_takes_as_many_seeds_as_simulated_experiments(margin: float, shared: float) -> None:
    """4,000 experiments of equal candidates about the advice, by the product's own interval."""
    design = FixedDesign(noise_sd=1.0, comparisons=2, evaluation_error=shared)
    advised = least_seeds(lambda n: design.is_within(margin, n))
    assert advised is not None
    random = np.random.default_rng(0)

    def within(seeds: int) -> float:
        draws = random.normal(0, shared, (4_000, 1)) + random.standard_normal((4_000, seeds))
        found = [paired_difference(each.tolist(), [0.0] * seeds, 2, shared_error=shared) for each in draws]
        return float(np.mean([each.model_copy(update={"margin": margin}).is_within_margin() for each in found if each]))

    assert within(advised) > POWER - 0.02
    assert within(advised - 1) < POWER + 0.02


def test_what_tuning_leaves_open_takes_more_seeds() -> None:
    rates = tuple(1e-3 * 2.0**place for place in range(-2, 3))
    flat = openness(0.005, Tuning(seeds=(1, 2, 3)), rates, 0.0)
    known = openness(0.005, Tuning(seeds=tuple(range(30))), rates, 0.006)
    assert flat(5)[0].mean() > 2 * known(5)[0].mean() > 0
    assert abs(flat(5)[2]).max() == 0.0, "in a flat basin nothing is missed"

    def advised(design: FixedDesign) -> int:
        found = least_seeds(lambda n: design.is_within(0.01, n))
        assert found is not None
        return found

    base = FixedDesign(noise_sd=0.005, comparisons=4)
    assert advised(FixedDesign(noise_sd=0.005, comparisons=4, openness=flat)) > advised(base)


@pytest.mark.parametrize("rates", [5, 1])
@pytest.mark.parametrize(("kind", "curvature"), [("flat", FLAT), ("steep", STEEP)])
def test_tuning_is_taken_to_leave_open_what_simulated_experiments_do(
    kind: str, curvature: float, rates: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """120 experiments of equal optimizers, through both phases; three standard errors. A single rate is extended."""
    count = 120
    monkeypatch.setattr(power, "GRIDS", 2 * count)
    world = grids.World(basin=kind, seeds=8, rates=rates)
    spec, random = grids.specification(world), np.random.default_rng(0)
    template = run_record(spec.first_runs()[0], 0, 3.3, "e")
    left_open = []
    for _ in range(count):
        truths, runs = grids.optimizers(world, [0.0, 0.0], random), grids.Runs(world, random)
        ended = [
            (each.name(), run)
            for each, truth in zip(spec.candidates, truths, strict=True)
            for run in grids.tuned(spec, each, truth, runs)
        ]
        records = [grids.record(template, place, *each) for place, each in enumerate(ended)]
        (row,) = (each for each in compare(experiment_record(spec, len(records), "e"), records).rows if each.difference)
        assert row.difference is not None
        left_open += [row.difference.regret, row.difference.baseline_regret]
    assert spec.tuning is not None
    width = curvature / math.log(2) ** 2
    taken, _, _ = openness.__wrapped__(PAIRED_SPREAD, spec.tuning, spec.candidates[0].learning_rates, width)(8)
    error = math.hypot(np.std(left_open), np.std(taken)) / math.sqrt(2 * count)
    assert float(taken.mean()) == pytest.approx(np.mean(left_open), abs=3 * error)
    assert error < 0.06 * float(taken.mean())


def test_a_single_rate_that_is_tuned_takes_more_seeds_than_one_that_is_given() -> None:
    """It is extended: what that leaves open is no less than of a grid."""
    given = at_kept_rates(None, None).model_copy(update={"kept_rates": None})
    tuned = given.model_copy(update={"tuning": Tuning()})
    for_one, for_given = (design_power(spec, [known_noise(given)]) for spec in (tuned, given))
    assert isinstance(for_one, DesignPower) and isinstance(for_given, DesignPower)
    assert for_one.detectable_difference is not None and for_given.detectable_difference is not None
    assert for_one.detectable_difference > 1.2 * for_given.detectable_difference


def test_grids_that_end_at_an_edge_show_nothing() -> None:
    """Two rates that are not extended: one of them is the best, and nothing is known of what lies beyond."""
    rates, tuning = (1e-3, 2e-3), Tuning(seeds=(1, 2), extend_grid=0)
    design = FixedDesign(noise_sd=0.005, openness=openness(0.005, tuning, rates, 0.0))
    assert detectable_difference(design, 5) is None
    assert least_seeds(lambda n: design.is_within(0.01, n)) is None
    sequential = SequentialDesign(
        design=design, sequential=Sequential(first_seeds=3, seeds_per_look=1), most=5, margin=0.01
    )
    assert detectable_difference(sequential, 5) is None
    assert sequential.expected_runs(2) == 6, "hopeless at the first look"


def ended_search(optima: Literal["alike", "apart"], number: int = 0) -> ExperimentWithRuns:
    """A simulated search over rate and beta2 with 8 trials, judged on 4 seeds."""
    spec, runs, _ = conducted(
        World(axes=2, trials=8, optima=optima, seeds=4), number, 0.0, np.random.default_rng(number)
    )
    return experiment_record(spec, len(runs), f"e{number}"), tuple(
        run.model_copy(update={"experiment_id": f"e{number}"}) for run in runs
    )


def test_what_an_earlier_search_left_open_is_what_the_next_one_is_taken_to() -> None:
    experiment, runs = ended_search("apart")
    spec = comparison_spec(experiment)
    (row,) = (row for row in compare(experiment, runs).rows if row.difference)
    found = design_power(spec, [(experiment, runs)])
    assert isinstance(found, DesignPower) and row.difference is not None and found.detectable_difference is not None
    luck = row.difference.regret
    assert (found.searches, found.experiments) == (1, 1), "its judged seeds tell the noise, too"
    assert found.left_open == pytest.approx(luck)
    assert found.detectable_difference > luck
    assert luck > 0.005
    assert "takes no number of seeds, for tuning leaves too much open" in " ".join(power_details(found))

    tuning = spec.tuning
    assert tuning is not None
    longer = spec.model_copy(update={"tuning": tuning.model_copy(update={"trials": 32})})
    of_longer = design_power(longer, [(experiment, runs)])
    assert isinstance(of_longer, DesignPower) and (of_longer.searches, of_longer.left_open) == (0, None)
    other = spec.model_copy(update={"tuning": tuning.model_copy(update={"search": ("lr",)})})
    unlike = design_power(other, [(experiment, runs)])
    assert isinstance(unlike, DesignPower) and (unlike.searches, unlike.left_open) == (0, None)
    going_on = experiment.model_copy(update={"counts": experiment.counts.model_copy(update={"growing": True})})
    not_ended = design_power(spec, [(going_on, runs)])
    assert isinstance(not_ended, DesignPower)
    assert (not_ended.searches, not_ended.searches_left_out) == (0, 1)
    assert "1 search like it was left out: not ended, or nobody knows" in " ".join(power_details(not_ended))
    both = design_power(spec, [(experiment, runs), (going_on, runs), ended_search("alike", 1)])
    assert isinstance(both, DesignPower) and (both.searches, both.searches_left_out) == (2, 1)
    assert "By 2 earlier searches like it, its search leaves" in " ".join(power_details(both))
    assert (found.searches_left_out, unlike.searches_left_out) == (0, 0)


def test_advice_on_a_search_is_that_of_simulated_ones_within_a_seed() -> None:
    """100 experiments a number of seeds, two standard errors; `benchmarks.power_advice --search` has more designs."""
    known = [each for number in range(12) for each in openings_of(*ended_search("alike", number))]
    design = FixedDesign(noise_sd=PAIRED_SPREAD, openness=openness_of_search(known))
    advised = least_seeds(lambda n: design.is_shown(0.015, n))
    assert advised is not None
    world = World(axes=2, trials=8, optima="alike")
    shown = [simulate(replace(world, seeds=advised + more), 100, 0.015, 1)["decided"] for more in (1, -2)]
    assert shown[0] > POWER - 0.08 and shown[1] < POWER + 0.08


def test_where_no_number_of_seeds_helps_the_advice_says_what_does() -> None:
    """With 0.004 nats of error of the text, the interval of exact losses reaches 0.0078 to either side."""
    noise_sd, margin = 0.01, 0.005
    exact = FixedDesign(noise_sd=noise_sd)
    coarse = FixedDesign(noise_sd=noise_sd, evaluation_error=0.004)
    is_open = FixedDesign(noise_sd=noise_sd, openness=lambda _: (np.full(1, 0.01), np.full(1, 0.01), np.zeros(1)))
    noisy = FixedDesign(noise_sd=40 * noise_sd)
    for design, limit in (
        (coarse, PowerLimit.EVALUATION),
        (is_open, PowerLimit.TUNING),
        (replace(is_open, evaluation_error=0.004), PowerLimit.TUNING),
        (noisy, PowerLimit.SEEDS),
    ):
        assert least_seeds(partial(FixedDesign.is_shown, design, margin)) is None
        assert limit_of(design, lambda of, seeds: of.is_shown(margin, seeds)) is limit
    assert least_seeds(partial(exact.is_shown, margin)) is not None
    told = DesignPower(
        seeds=5, comparisons=1, paired_sd=0.01, experiments=1, detectable_difference=0.02, margin=margin,
        seeds_for_margin=None, limit=PowerLimit.EVALUATION, loss_unit=" nats", noise_factor=1.2,
    )  # fmt: skip
    assert power_text(told) == "with 5 seeds, a difference of 0.02 nats"
    said = " ".join(power_details(told))
    assert "A difference of 0.005 nats takes no number of seeds, as good within 0.005 nats takes no number" in said
    assert "more `evaluation.sequences` do" in said
    assert "takes more than a thousand seeds" in " ".join(
        power_details(told.model_copy(update={"limit": PowerLimit.SEEDS}))
    )


def test_spikes_and_twins_leave_the_noise_alone() -> None:
    """Three candidates with a paired deviation of 0.005, of which the second stands there twice; every tenth run is
    0.3 too high."""
    random = np.random.default_rng(2)

    def experiment() -> list[dict[int, float]]:
        own = random.normal(0.0, 0.005 / np.sqrt(2), size=(3, 6)) + 0.3 * (random.random((3, 6)) < 0.1)
        rows = 3.3 + random.normal(0, 0.016, 6) + own
        return [dict(enumerate(row.tolist())) for row in (rows[0], rows[1], rows[1], rows[2])]

    found = noise(experiment() for _ in range(100))
    assert found is not None
    assert found.paired_sd == pytest.approx(0.005, rel=0.15)
    assert noise([[{0: 1.0, 1: 2.0}, {0: 1.0, 1: 2.0}]]) is None, "one candidate by two names"


@pytest.mark.parametrize("seeds", [3, 5, 10])
@pytest.mark.parametrize("spread", [0.02, 0.1])
def test_noise_of_two_candidates_is_not_taken_for_spikes(seeds: int, spread: float) -> None:
    """Losses of 3 with noise of 0.5 to 2 % of them. By chi-square 2.3 % of the estimates with 5 seeds lie below a third
    of the truth."""
    random = np.random.default_rng(seeds)

    def estimate() -> float:
        runs = 3 + spread / math.sqrt(2) * random.standard_normal((2, seeds))
        found = noise([[dict(enumerate(row.tolist())) for row in runs]])
        assert found is not None
        return found.paired_sd

    expected = stats.chi2.cdf((seeds - 1) / 9, seeds - 1)
    below = float(np.mean([estimate() < spread / 3 for _ in range(300)]))
    assert below <= expected + 0.07, "what is called a spike by chance, too"


def test_trials_of_a_search_are_no_grid_of_rates() -> None:
    """A descent's trials hardly differ in their rates: what else they try would make a basin as steep as a cliff."""
    spec = made_comparison(learning_rates=(1e-3, 2e-3, 4e-3), seeds=range(3))
    grid = [
        run_record(run, place, 3.0 + 0.02 * math.log(run.spec.optimizer.lr / 2e-3) ** 2, "grid")
        for place, run in enumerate(spec.first_runs())
    ]
    plain = curvature(grid)
    assert plain == pytest.approx(0.02)
    searched = []
    for place, run in enumerate(spec.first_runs()):
        trial = (1e-3, 2e-3, 4e-3).index(run.spec.optimizer.lr)
        tried = run.spec.optimizer.model_copy(
            update={"lr": 1e-3 * (1 + 1e-7 * trial), "options": {"beta2": 0.9 + 0.01 * trial}}
        )
        moved = run.model_copy(update={"spec": run.spec.model_copy(update={"optimizer": tried})})
        searched.append(run_record(moved, place, 3.0 + 0.01 * abs(trial - 1), "search"))
    assert curvature(searched) == 0
    assert curvature([*grid, *searched]) == plain


def test_noise_is_what_was_planted_whatever_seeds_and_candidates_add() -> None:
    """Seeds that move all candidates by 0.016 and candidates that differ by 0.1 leave the paired deviation alone."""
    random = np.random.default_rng(1)

    def experiment() -> list[dict[int, float]]:
        seeds = random.normal(3.0, 0.016, size=5)
        offsets = random.normal(0.0, 0.1, size=4)
        noise_of_runs = random.normal(0.0, 0.005 / np.sqrt(2), size=(4, 5))
        return [
            {seed: float(seeds[seed] + offsets[each] + noise_of_runs[each, seed]) for seed in range(5)}
            for each in range(4)
        ]

    found = noise(experiment() for _ in range(200))
    assert found is not None
    assert found.degrees == 200 * 12
    assert found.experiments == 200
    assert found.paired_sd == pytest.approx(0.005, rel=0.05)


def test_noise_counts_common_seeds_only_and_needs_a_pair_of_them() -> None:
    assert noise([]) is None
    assert noise([[]]) is None
    assert noise([[{0: 1.0, 1: 2.0}]]) is None
    assert noise([[{0: 1.0, 1: 2.0}, {1: 2.0, 2: 3.0}]]) is None
    found = noise([[{0: 1.0, 1: 2.0, 7: 9.0}, {0: 1.0, 1: 2.2}]])
    assert found is not None
    assert found.degrees == 1
    # One pair of seeds: the differences are 0 and 0.2, whose standard deviation is 0.2 / sqrt(2). Of one degree of
    # freedom half of such lie below 0.67 times the truth.
    assert found.paired_sd == pytest.approx(0.2 / np.sqrt(2) / np.sqrt(stats.chi2.median(1)))


def test_runs_that_spike_take_from_power_what_simulated_experiments_lose_by_them() -> None:
    """A candidate with more spikes than the baseline has no verdict, nor one where half of the seeds have a spike."""
    random, share, seeds, difference, count = np.random.default_rng(4), 0.1, 8, 2.0, 4_000
    shown = 0
    for _ in range(count):
        here, there = random.random((2, seeds)) < share
        stable = ~(here | there)
        more, left = int((here & ~there).sum()) > int((there & ~here).sum()), int(stable.sum())
        if more or 2 * left <= seeds:
            continue
        found = paired_difference((random.standard_normal(left) - difference).tolist(), [0.0] * left)
        shown += found is not None and found.is_better()
    design = FixedDesign(noise_sd=1.0, spike_shares=(share, share))
    assert design.is_shown(difference, seeds) == pytest.approx(shown / count, abs=0.04)
    assert least_seeds(partial(design.is_shown, 0.8), design) is None, "the more seeds, the more often one more spikes"
    assert limit_of(design, lambda of, n: of.is_shown(0.8, n)) is PowerLimit.INSTABILITY
    diverging = FixedDesign(noise_sd=1.0, diverging_shares=(0.02, 0.02))
    stable_chance = FixedDesign(noise_sd=1.0).is_shown(difference, seeds)
    assert diverging.is_shown(difference, seeds) == pytest.approx(stable_chance * 0.98 ** (2 * seeds))


def test_spikes_of_the_baseline_alone_cost_seeds_and_those_of_the_candidate_alone_the_verdict() -> None:
    of_baseline = FixedDesign(noise_sd=1.0, spike_shares=(0.0, 0.15))
    stable = FixedDesign(noise_sd=1.0)
    needed, at_least = (least_seeds(partial(design.is_shown, 1.0), design) for design in (of_baseline, stable))
    assert needed is not None and at_least is not None and at_least < needed < 1.5 * at_least
    of_candidate = FixedDesign(noise_sd=1.0, spike_shares=(0.15, 0.0))
    assert of_candidate.is_shown(5.0, 5) < 0.85**5 + 0.01, "one spike more than the baseline is one too many"


def test_judged_runs_that_all_diverged_are_counted_and_no_tuning_runs_taken_for_them() -> None:
    experiment, ended = ended_comparison(5, 0.0, third_is_judged=True)
    runs = [
        run.model_copy(update={"result": result(verdict=Verdict.DIVERGED, final_val_loss=None)})
        if run.candidate == "lion" and run.seed < 100
        else run
        for run in ended
    ]
    found = candidates_of(experiment, runs)
    assert {each.name: (len(each.losses), each.diverged) for each in found} == {
        "adamw": (5, 0), "adapm": (5, 0), "lion": (0, 5),
    }  # fmt: skip
    spec = made_comparison(optimizers=("adamw", "lion"), learning_rates=(2e-3,), seeds=range(5))
    told = design_power(spec, [(experiment, runs)])
    assert isinstance(told, DesignPower) and told.unstable_share == pytest.approx(1 / 3)
    assert "33 % of runs are taken to spike or diverge, as before." in power_details(told)


def test_an_untuned_grid_in_a_steep_basin_shows_nothing_with_any_number_of_seeds() -> None:
    """Half a step is missed by up to 0.0125 nats, and nothing says by how much."""
    rates = tuple(1e-3 * 2**place for place in range(-2, 3))
    flat, steep = (
        FixedDesign(noise_sd=PAIRED_SPREAD, openness=openness_of_untuned(PAIRED_SPREAD, rates, of / math.log(2) ** 2))
        for of in (FLAT, STEEP)
    )
    assert least_seeds(partial(steep.is_shown, 0.01)) is None
    assert limit_of(steep, lambda of, seeds: of.is_shown(0.01, seeds)) is PowerLimit.TUNING
    advised = least_seeds(partial(flat.is_shown, 0.01))
    assert advised is not None
    world = grids.World(tuning_seeds=0)
    found = [grids.simulate(replace(world, seeds=seeds), 60).shares()["power"] for seeds in (advised + 5, 5)]
    assert found[0] is not None and found[0] >= POWER - 0.1, "the advice suffices"
    assert found[1] is not None and found[1] < POWER, "and what a tuned grid takes does not"


def ended_comparison(seeds: int, spike: float, *, third_is_judged: bool) -> ExperimentWithRuns:
    """Three candidates, tuned on three seeds at three rates and judged on others; the second's judged run spikes."""
    random = np.random.default_rng(seeds)
    spec = made_comparison(
        optimizers=("adamw", "adapm", "lion"), learning_rates=(1e-3, 2e-3, 4e-3), seeds=range(seeds),
        tuning=Tuning(seeds=(100, 101, 102)),
    )  # fmt: skip
    judged = spec.model_copy(update={"tuning": None}).first_runs()
    planned = [*spec.first_runs(), *(run for run in judged if run.spec.optimizer.lr == 2e-3)]
    runs = [
        run_record(run, place, 3.0 + float(random.normal(0.0, 0.005 / math.sqrt(2))) + spike * is_spike)
        for place, run in enumerate(planned)
        if third_is_judged or run.candidate != "lion" or run.spec.seed >= 100
        for is_spike in [(run.candidate, run.spec.seed) == ("adapm", 1)]
    ]
    return experiment_record(spec, len(runs)), runs


def candidates_of(experiment: ExperimentRecord, runs: Sequence[RunRecord]) -> Sequence[EarlierCandidate]:
    (found,) = known_losses(experiment.spec.workload, [(experiment, runs)])
    return found.candidates


@pytest.mark.parametrize("third_is_judged", [False, True])
@pytest.mark.parametrize("spike", [0.0, 0.3])
def test_a_spike_of_few_judged_runs_is_told_by_the_grids_that_chose_their_rates(
    spike: float, *, third_is_judged: bool
) -> None:
    """Three judged seeds alone tell no spike. Who was tuned and never judged does not hide the noise of the others."""
    found = candidates_of(*ended_comparison(3, spike, third_is_judged=third_is_judged))
    assert {each.name: each.spiked for each in found if each.spiked} == ({"adapm": 1} if spike else {})
    of = noise([[each.losses for each in found]])
    assert of is not None and of.paired_sd < 0.02


def at_kept_rates(adamw: float | None, adapm: float | None, seeds: int = 10) -> ComparisonSpec:
    """A margin of 0.05, and text without an error."""
    spec = made_comparison(optimizers=("adamw", "adapm"), learning_rates=(2e-3,), seeds=range(seeds))
    text = spec.workload.evaluation.model_copy(update={"sequences": 10**9})
    return spec.model_copy(
        update={
            "workload": spec.workload.model_copy(update={"evaluation": text}),
            "kept_rates": KeptRates(experiment="a1", regrets={"adamw": adamw, "adapm": adapm}),
            "equivalence_margin": 0.05,
        }
    )


def conclusions(spec: ComparisonSpec, difference: float, count: int) -> list[Conclusion]:
    """Of simulated experiments with paired noise of 0.005, by the product's own comparison."""
    random = np.random.default_rng(len(spec.seeds))

    def outcome(candidate: str, lr: float, seed: int) -> float:
        return 3.0 + difference * (candidate == "adapm") + float(random.normal(0, PAIRED_SPREAD / math.sqrt(2)))

    found = (compare(*records(spec, outcome)) for _ in range(count))
    return [row.conclusion for each in found for row in each.rows if row.candidate == "adapm"]


def known_noise(spec: ComparisonSpec) -> ExperimentWithRuns:
    """An earlier experiment on 300 seeds, which tells the noise of 0.005 to 4 %."""
    random = np.random.default_rng(0)
    many = spec.model_copy(update={"seeds": tuple(range(300)), "kept_rates": None})
    return records(many, lambda *_: 3.0 + float(random.normal(0, PAIRED_SPREAD / math.sqrt(2))))


@pytest.mark.parametrize(("adamw", "adapm"), [(0.0, 0.0), (0.01, 0.02), (0.03, 0.01)])
def test_at_kept_rates_the_advised_difference_is_shown_as_often_as_in_simulated_experiments(
    adamw: float, adapm: float
) -> None:
    """Whichever way it lies; 150 experiments each way, three standard errors."""
    spec = at_kept_rates(adamw, adapm)
    told = design_power(spec, [known_noise(spec)])
    assert isinstance(told, DesignPower) and told.detectable_difference is not None and told.seeds_for_margin
    least = told.detectable_difference
    shown = {
        Conclusion.BETTER: conclusions(spec, -least, 150).count(Conclusion.BETTER) / 150,
        Conclusion.WORSE: conclusions(spec, least, 150).count(Conclusion.WORSE) / 150,
    }
    assert min(shown.values()) == pytest.approx(POWER, abs=0.1)
    assert (max(shown.values()) == 1) == (adamw != adapm), "against the smaller regret it is shown more easily"
    equal = conclusions(at_kept_rates(adamw, adapm, told.seeds_for_margin), 0.0, 150)
    assert equal.count(Conclusion.AS_GOOD) / 150 > POWER - 0.1
    assert told.out_of_reach == {}
    assert f"left up to {max(adamw, adapm):.2g} nats open" in " ".join(power_details(told))


@pytest.mark.parametrize(
    ("adamw", "adapm", "lost", "said"),
    [
        (None, None, ("better", "worse", "as_good"), "nothing, with any number of seeds"),
        (None, 0.01, ("better", "as_good"), "with 10 seeds, that a candidate is worse by 0.01"),
        (0.01, None, ("worse", "as_good"), "with 10 seeds, that a candidate is better by 0.01"),
    ],
)
def test_what_an_open_kept_rate_forbids_is_said_and_is_what_simulated_experiments_never_say(
    adamw: float | None, adapm: float | None, lost: tuple[str, ...], said: str
) -> None:
    spec = at_kept_rates(adamw, adapm)
    told = design_power(spec, [known_noise(spec)])
    assert isinstance(told, DesignPower)
    assert told.out_of_reach == {"adapm": lost}
    assert power_text(told).startswith(said)
    assert told.seeds_for_margin is None
    verdicts = [each.replace("_", " ") for each in lost]
    assert f"adapm can be called neither {', '.join(verdicts[:-1])} nor as good with any number of seeds" in " ".join(
        power_details(told)
    )
    found = {difference: {*conclusions(spec, difference, 20)} for difference in (-1.0, 0.0, 1.0)}
    assert not set().union(*found.values()) & {*lost}
    for difference, verdict in ((-1.0, Conclusion.BETTER), (1.0, Conclusion.WORSE)):
        assert (found[difference] == {verdict}) == (verdict not in lost)


def test_of_few_earlier_runs_the_noise_is_as_often_too_large_as_too_small_and_its_bounds_hold_it() -> None:
    """Two candidates on 5 seeds, 1,000 times: three standard errors. Roots of mean squares are too small in 59 %."""
    random = np.random.default_rng(3)

    def estimate() -> Noise:
        runs = 3.3 + random.normal(0, 0.005 / math.sqrt(2), (2, 5))
        found = noise([[dict(enumerate(row.tolist())) for row in runs]])
        assert found is not None
        return found

    found = [estimate() for _ in range(1000)]
    assert np.mean([each.paired_sd < 0.005 for each in found]) == pytest.approx(0.5, abs=0.05)
    assert np.mean([low < 0.005 < high for low, high in (each.bounds() for each in found)]) == pytest.approx(
        0.95, abs=0.02
    )


def test_of_one_earlier_experiment_ranges_are_told() -> None:
    experiment, runs = ended_comparison(5, 0.0, third_is_judged=False)
    spec = made_comparison(optimizers=("adamw", "adapm"), learning_rates=(2e-3,), seeds=range(5))
    spec = spec.model_copy(update={"workload": at_kept_rates(0.0, 0.0).workload})
    moved = [
        run.model_copy(update={"spec": run.spec.model_copy(update={"workload": spec.workload})})
        for run in runs
        if run.spec
    ]
    told = design_power(spec, [(experiment, moved)])
    assert isinstance(told, DesignPower) and told.least_noise and told.most_noise
    least, most = told.least_noise.seeds_for_difference, told.most_noise.seeds_for_difference
    assert least and most and told.seeds_for_difference and least < told.seeds_for_difference < most
    assert f"takes {told.seeds_for_difference} seeds ({least} to {most}), as good" in " ".join(power_details(told))
    assert " nats (0.00" in power_text(told)
    sure = design_power(spec, [known_noise(spec)])
    assert isinstance(sure, DesignPower) and (sure.least_noise, sure.most_noise) == (None, None)
    assert "(" not in power_text(sure)


def test_noise_is_that_of_judged_runs_of_ended_experiments_where_there_are_any() -> None:
    """Another experiment is still tuning: its losses vary by 0.1 at the best rate so far."""
    experiment, runs = ended_comparison(5, 0.0, third_is_judged=True)
    spec, random = comparison_spec(experiment), np.random.default_rng(1)
    tuning = [
        run_record(run, place, 3.0 + float(random.normal(0, 0.1)), "f") for place, run in enumerate(spec.first_runs())
    ]
    going_on = experiment_record(spec, len(tuning), "f", growing=True), tuning
    planned = made_comparison(optimizers=("adamw", "lion"), learning_rates=(2e-3,), seeds=range(5))
    alone = design_power(planned, [(experiment, runs)])
    both = design_power(planned, [(experiment, runs), going_on])
    assert isinstance(alone, DesignPower) and both == alone and not alone.unfinished
    told = design_power(planned, [going_on])
    assert isinstance(told, DesignPower) and told.unfinished and told.paired_sd > 5 * alone.paired_sd
    assert "not all of them were judged, and at other rates it may be quite another" in " ".join(power_details(told))
    cancelled = experiment_record(spec, len(tuning), "f"), tuning
    assert design_power(planned, [cancelled]) == told, "ended, and never judged"
