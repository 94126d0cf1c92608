"""Fits over experiments: what each optimizer's law is, what it cannot say, and no NaN wherever runs are missing."""

import json
from collections.abc import Callable, Mapping
from typing import Literal

import numpy as np
import pytest

from benchmarks import tuned_laws
from benchmarks.scaling_fit import FLOORED, PLANTED, World, covered, grid, line, planted
from orchestrator.analysis.cells import comparisons
from orchestrator.analysis.comparison import evaluation_error
from orchestrator.analysis.laws.fit import FitError, fit_experiments
from orchestrator.analysis.laws.model import richest_form
from orchestrator.analysis.laws.records import CandidateFit, Estimate, FitReport, FormName
from orchestrator.analysis.laws.targets import Target
from orchestrator.analysis.laws.verdicts import no_law
from orchestrator.jobs import RunStatus
from orchestrator.kinds.comparison import ComparisonSpec
from orchestrator.records import ExperimentWithRuns, Interval
from tests.factories.comparison import Outcome, experiment_record, records, run_record
from tests.factories.scaling import scaling_spec
from tests.factories.stores import comparison_spec, result
from worker.records.result import Verdict
from worker.spec.run import Workload

LawOf = Callable[[str, float, float], float]


def measured(
    sizes: Mapping[int, tuple[int, ...]],
    law: LawOf,
    *,
    noise: float = 0.002,
    seeds: int = 3,
    spec: ComparisonSpec | None = None,
) -> list[ExperimentWithRuns]:
    """One experiment for each model size and token budget; losses follow the law, with noise shared by equal seeds."""
    random = np.random.default_rng(0)
    found: list[ExperimentWithRuns] = []
    base = spec or comparison_spec(optimizers=("adamw", "adapm"), seeds=range(seeds))
    for parameters, budgets in sizes.items():
        for tokens in budgets:
            shift = {seed: random.normal(0, noise) for seed in base.seeds}
            own = random.normal(0, noise / 4, 100)

            def outcome(
                name: str, _lr: float, seed: int, n: int = parameters, d: int = tokens, s=shift, o=own
            ) -> Outcome:
                loss = law(name, n, d) * float(np.exp(s[seed] + o[seed + 50 * (name == "adapm")]))
                return result(final_val_loss=loss).model_copy(update={"parameters": n, "tokens": d})

            found.append(records(base, outcome, experiment=f"e{parameters}-{tokens}"))
    return found


SIZES = {10**6: (2 * 10**7,), 10**7: (2 * 10**8,), 10**8: (2 * 10**9,), 10**9: (2 * 10**10,), 3 * 10**9: (6 * 10**10,)}
GRID = {10**k: (10**8, 10**9, 10**10) for k in (6, 7, 8, 9)}


def power(name: str, n: float, _d: float) -> float:
    """AdaPM falls faster: 0.30 against 0.25."""
    return float(1.8 + 50 * n ** -(0.30 if name == "adapm" else 0.25))


def of(report: FitReport, candidate: str) -> CandidateFit:
    json.dumps(report.model_dump(mode="json"), allow_nan=False)
    return next(each for each in report.fits if each.candidate == candidate)


def test_batches_that_differ_are_said() -> None:
    one_batch = measured(SIZES, power)
    budget = one_batch[0][0].spec.workload.budget
    larger = one_batch[0][0].spec.workload.model_copy(
        update={"budget": budget.model_copy(update={"batch_sequences": 4 * budget.batch_sequences})}
    )
    spec = one_batch[0][0].spec.model_copy(update={"workload": larger})
    first = (one_batch[0][0].model_copy(update={"spec": spec}), one_batch[0][1])
    said = f"have batches of {budget.batch_sequences}, {4 * budget.batch_sequences} sequences"
    assert [said in note for note in fit_experiments([first, *one_batch[1:]], draws=50).notes].count(True) == 1
    assert not [note for note in fit_experiments(one_batch, draws=50).notes if "batches" in note]


def test_each_optimizer_gets_its_law_with_intervals_and_the_difference_is_tested() -> None:
    report = fit_experiments(measured(SIZES, power), predict=[(10**10, None)], draws=300)
    assert (report.form, report.baseline) == ("n", "adamw")
    adamw, adapm = of(report, "adamw"), of(report, "adapm")
    for fit, true in ((adamw, 0.25), (adapm, 0.30)):
        alpha = fit.coefficients["alpha"]
        assert alpha.low is not None and alpha.high is not None
        assert alpha.low <= true <= alpha.high
    (difference,) = adapm.against_baseline
    assert difference.p_value is not None and difference.p_value < 0.05
    assert [each.parameters for each in adapm.loss_differences] == list(SIZES)
    for each in adapm.loss_differences:
        true = power("adapm", each.parameters, 0) - power("adamw", each.parameters, 0)
        assert each.difference.value == pytest.approx(true, abs=0.02)
        assert each.difference.low is not None and each.difference.high is not None
        assert each.difference.low <= true <= each.difference.high
    assert adamw.against_baseline == ()
    (predicted,) = adapm.predictions
    assert predicted.tokens == 2 * 10**11
    assert predicted.loss.value == pytest.approx(power("adapm", 1e10, 0), abs=0.02)
    assert adapm.held_out is not None
    assert abs(adapm.held_out.error) < 0.05
    assert "Tokens change with the model: alpha is the exponent of both together." in report.notes


def drifting(first: float, last: float) -> LawOf:
    """AdaPM's loss above AdamW's by `first` nats at the smallest size, and by `last` at the largest."""
    smallest, largest = min(SIZES), max(SIZES)

    def law(name: str, n: float, _d: float) -> float:
        share = np.log(n / smallest) / np.log(largest / smallest)
        return float(1.8 + 50 * n**-0.25 + (name == "adapm") * (first + share * (last - first)))

    return law


@pytest.mark.parametrize(
    ("first", "last", "words"),
    [(0.0, 0.1, "it loses ground"), (0.1, 0.0, "it gains ground"), (0.05, 0.05, "no drift shown")],
)
@pytest.mark.parametrize("form", ["n", "n0"])
def test_drift_with_size_has_the_sign_of_the_losses(first: float, last: float, words: str, form: FormName) -> None:
    """In nats, whatever the exponents do: a deficit that grows is lost ground in every form."""
    found = of(fit_experiments(measured(SIZES, drifting(first, last), noise=0.001), form=form, draws=300), "adapm")
    assert words in found.verdict
    assert found.drift is not None
    assert found.drift.change.value == pytest.approx(last - first, abs=0.03)


@pytest.mark.parametrize("last", [0.0, 0.006, 0.012, 0.02])
def test_drift_is_said_where_its_interval_leaves_zero_out_and_nowhere_else(last: float) -> None:
    found = of(fit_experiments(measured(SIZES, drifting(0.0, last), noise=0.01), draws=200), "adapm")
    assert found.drift is not None and found.drift.p_value is not None
    low, high = found.drift.change.low, found.drift.change.high
    assert low is not None and high is not None
    leaves_zero_out = low > 0 or high < 0
    assert leaves_zero_out == (found.drift.p_value < 0.05) == ("no drift shown" not in found.verdict)


def test_equal_laws_show_no_drift() -> None:
    found = of(fit_experiments(measured(SIZES, drifting(0, 0)), draws=300), "adapm")
    assert "no drift shown" in found.verdict
    assert all(each.difference.low < 0 < each.difference.high for each in found.loss_differences)  # type: ignore[operator]


def test_a_law_of_one_budget_predicts_for_that_budget() -> None:
    """Not for the largest model's tokens a parameter: the law has no tokens in it, and knows of no other budget."""
    fixed = dict.fromkeys(SIZES, (10**8,))
    report = fit_experiments(measured(fixed, power), predict=[(10**10, None), Target(10**10, 10**12)], draws=50)
    found = of(report, "adapm")
    assert {each.tokens for each in found.predictions} == {10**8}
    assert {point.tokens for curve in found.curves for point in curve.points} == {10**8}


MIXED = dict(zip(SIZES, ((10**7,), (10**9,), (10**8,), (10**7, 10**9), (10**8,)), strict=True))


@pytest.mark.parametrize(
    ("budgets", "tokens"),
    [
        (dict.fromkeys(SIZES, (10**8, 4 * 10**8)), 4 * 10**8),
        ({n: (10 * n, 20 * n) for n in SIZES}, 20 * 10**10),
        ({n: (10**8 if n < 10**9 else 10**8 + 5000,) for n in SIZES}, 10**8),
        ({n: (round(1000 * n**0.5),) for n in SIZES}, 10**8),
    ],
    ids=["two budgets", "two ratios", "a step more", "the root of the size"],
)
def test_a_law_of_sizes_is_one_at_a_budget_for_each_size(budgets: dict[int, tuple[int, ...]], tokens: int) -> None:
    """Its predictions hold at the tokens that they name."""

    def hoffmann(_name: str, n: float, d: float) -> float:
        return float(1.69 + 406.4 * n**-0.34 + 410.7 * d**-0.28)

    report = fit_experiments(measured(budgets, hoffmann, noise=1e-5), form="n", predict=[(10**10, 123)], draws=100)
    found = of(report, "adamw")
    (predicted,) = found.predictions
    assert predicted.tokens == pytest.approx(tokens, rel=1e-4)
    assert predicted.loss.value == pytest.approx(hoffmann("", 10**10, tokens), rel=0.02)
    assert len([point for point in found.points if point.fitted is not None]) == len(SIZES)
    left_out = "The law is one at the largest budget that all have: 5 cells have another budget and no part in it."
    assert any(note.startswith(left_out) for note in report.notes) == (len(found.points) > len(SIZES))
    follows = "Tokens change with the model: alpha is the exponent of both together."
    assert (follows in report.notes) == (len({point.tokens for point in found.points if point.fitted}) > 2)


def test_cells_that_a_law_is_not_sought_along_are_named_where_none_is_found() -> None:
    """Losses that are the same at every size have no law; three sizes with two budgets each are three cells of it."""
    budgets = dict.fromkeys(list(SIZES)[:3], (10**8, 4 * 10**8))
    report = fit_experiments(measured(budgets, lambda _name, _n, d: 3.0 if d > 10**8 else 3.1, noise=0.01), form="n0")
    found = of(report, "adamw")
    assert [point.tokens for point in found.points if point.is_in_law] == [4 * 10**8] * 3
    assert found.verdict.startswith("No law found") and not any(point.fitted for point in found.points)
    left_out = "The law is one at the largest budget that all have: 3 cells have another budget and no part in it."
    assert any(note.startswith(left_out) for note in report.notes)


def test_sizes_without_a_budget_in_common_have_no_law() -> None:
    found = of(fit_experiments(measured(MIXED, power), form="n", predict=[(10**10, None)], draws=50), "adapm")
    assert found.verdict.startswith("No law found: no budget is one of all model sizes, and the budgets do not follow")
    assert not found.predictions and not found.curves and found.held_out is None


def test_a_law_of_tokens_over_several_sizes_is_one_of_the_largest() -> None:
    report = fit_experiments(measured(GRID, power_of_tokens), form="d0", draws=50)
    assert {point.parameters for point in of(report, "adamw").points if point.fitted is not None} == {10**9}


def power_of_tokens(_name: str, n: float, d: float) -> float:
    return float(40 * d**-0.12 + n**-0.1)


@pytest.mark.parametrize(("size", "is_far"), [(10**4, True), (5 * 10**5, False), (10**10, False), (10**12, True)])
def test_a_prediction_far_from_the_trained_sizes_is_said(size: int, is_far: bool) -> None:
    report = fit_experiments(measured(SIZES, power), predict=[(size, None)], draws=50)
    assert any(note.startswith("Predicted far from the sizes") for note in report.notes) is is_far


def test_an_exponent_that_may_be_anything_is_no_law() -> None:
    found = no_law({"alpha": Estimate(value=0.119, low=0.02, high=3.595)})
    assert found is not None and "0.020 to 3.595, reaches its bound of 3: it may be anything" in found
    assert no_law({"alpha": Estimate(value=0.119, low=0.02, high=2.9)}) is None


def test_the_error_of_the_validation_text_is_in_what_all_sizes_share() -> None:
    """It is the same text at every size, so that residuals do not show its error: of equal optimizers, of which one has
    the luck of the text at every size, intervals leave zero out in at most 5 %, within three standard errors."""
    base = comparison_spec(optimizers=("adamw", "adapm"), seeds=range(3))
    error, random, wrong = evaluation_error(base.workload), np.random.default_rng(0), {"typical": 0, "bands": 0}
    experiments = 30
    for _ in range(experiments):
        luck = random.normal(0, error)

        def law(name: str, n: float, d: float, luck: float = luck) -> float:
            return power("", n, d) + luck * (name == "adapm") + float(random.normal(0, 0.002))

        found = of(fit_experiments(measured(SIZES, law, noise=1e-4, spec=base), draws=100), "adapm")
        assert found.typical_difference is not None
        wrong["typical"] += not within(found.typical_difference.difference)
        wrong["bands"] += not all(within(each.difference) for each in found.loss_differences)
    most = 0.05 + 3 * (0.05 * 0.95 / experiments) ** 0.5
    assert {name: count / experiments <= most for name, count in wrong.items()} == dict.fromkeys(wrong, True), wrong


def within(interval: Interval | Estimate) -> bool:
    return (interval.low is None or interval.low <= 0) and (interval.high is None or interval.high >= 0)


def test_models_of_several_families_in_one_law_are_said() -> None:
    spec = scaling_spec(sizes=[{"model": each} for each in ("gpt2-nano", "llama-tiny", "mixtral-tiny", "gpt2-mini")])
    planned = spec.first_runs()
    runs = [run_record(each, place, 3.0) for place, each in enumerate(planned)]
    notes = fit_experiments(comparisons(experiment_record(spec, len(runs)), runs), draws=50).notes
    assert any(note.startswith("Models of gpt2, llama, mixtral are in one law") for note in notes)
    assert any("count all experts" in note for note in notes)


def test_sizes_times_budgets_give_hoffmanns_form_and_data_efficiency() -> None:
    """AdaPM's losses are those of AdamW with 1.5 times the data."""

    def law(name: str, n: float, d: float) -> float:
        return float(1.69 + 406.4 * n**-0.34 + 410.7 * (d * (1.5 if name == "adapm" else 1)) ** -0.28)

    report = fit_experiments(measured(GRID, law, noise=0.0005), draws=200)
    assert report.form == "nd"
    ratios = [each.ratio for each in of(report, "adapm").data_efficiency if each.tokens <= 10**9]
    assert all(ratio is not None for ratio in ratios)
    assert np.median(np.array(ratios, dtype=float)) == pytest.approx(1.5, rel=0.15)


@pytest.mark.parametrize(("count", "sentence"), [(1, "Not fitted: 1 model size;"), (2, "Not fitted: 2 model sizes;")])
def test_too_few_sizes_are_a_sentence(count: int, sentence: str) -> None:
    few = dict(list(SIZES.items())[:count])
    found = of(fit_experiments(measured(few, power), form="n0", draws=50), "adapm")
    assert found.verdict.startswith(sentence)
    assert (found.coefficients, found.against_baseline, found.held_out) == ({}, (), None)


@pytest.mark.parametrize(("sizes", "least", "most"), [(3, 0.3, 1.0), (4, 0.15, 1.0), (5, 0.0, 0.15)])
def test_with_one_degree_of_freedom_a_law_is_found_by_luck_alone(sizes: int, least: float, most: float) -> None:
    """What `law_warnings` warns of: two optimizers with a floor, sizes from 0.08 to 2.8 M, 20 times."""
    cells = tuple((round(n), 300_000) for n in np.geomspace(8e4, 2.8e6, sizes))
    world = World(name="", form=richest_form(cells).name, law=FLOORED, cells=cells, seeds=2)
    found = [each.no_law for data in planted(world, 20, 0) for each in fit_experiments(data, draws=200).fits]
    assert least <= np.mean([each is not None for each in found]) <= most


@pytest.mark.parametrize(
    ("law", "reason"),
    [
        (lambda _name, _n, _d: 2.5, "No law found: the 95 % interval of alpha, "),
        (lambda _name, n, _d: 0.5 * n**0.05, "No law found: the loss rises with size, alpha = -0.0"),
    ],
)
def test_without_a_law_nothing_is_predicted(law: LawOf, reason: str) -> None:
    report = fit_experiments(measured(SIZES, law, noise=0.01), form="n0", predict=[(10**10, None)], draws=200)
    for name in ("adamw", "adapm"):
        found = of(report, name)
        assert found.verdict.startswith(reason)
        assert "Nothing is predicted." in found.verdict
        assert (found.typical_difference is None) is (name == "adamw"), "measured losses tell it without a law"
        assert found.no_law is not None and found.no_law in found.verdict
        assert (found.predictions, found.curves, found.held_out) == ((), (), None)
        assert (found.against_baseline, found.loss_differences, found.drift) == ((), (), None)


def test_a_law_beside_none_predicts_alone() -> None:
    """The baseline has none, so there is nothing to hold the other one against."""

    def law(name: str, n: float, _d: float) -> float:
        return float(3.0 if name == "adamw" else 5 * n**-0.05)

    report = fit_experiments(measured(SIZES, law, noise=0.01), form="n0", predict=[(10**10, None)], draws=200)
    assert of(report, "adamw").predictions == ()
    found = of(report, "adapm")
    assert len(found.predictions) == 1
    assert found.drift is None
    assert "cannot be held against the baseline's" in found.verdict


def test_runs_without_a_trained_model_are_left_out_and_counted() -> None:
    experiments = measured(SIZES, power)
    experiment, runs = experiments[0]
    diverged = result(final_val_loss=None, verdict=Verdict.DIVERGED)
    runs = tuple(run.model_copy(update={"result": diverged}) if run.seed == 0 else run for run in runs)
    report = fit_experiments([(experiment, runs), *experiments[1:]], draws=50)
    left_out = "Runs at the best learning rate that ended without a trained model were left out: AdamW (1), AdaPM (1)."
    assert left_out in report.notes
    assert of(report, "adapm").points[0].n == 2


def test_runs_that_have_not_ended_are_not_told_as_ended_without_a_model() -> None:
    experiments = measured(SIZES, power)
    experiment, runs = experiments[0]
    waits = {"result": None, "status": RunStatus.QUEUED, "ended_at": None}
    runs = tuple(run.model_copy(update=waits) if run.candidate == "adapm" else run for run in runs)
    report = fit_experiments([(experiment, runs), *experiments[1:]], draws=50)
    assert "Runs at the best learning rate that have not ended are not in it yet: AdaPM (3)." in report.notes
    assert not [note for note in report.notes if "ended without a trained model" in note]


def test_a_law_of_tokens_alone_predicts_no_other_size() -> None:
    def law(_name: str, _n: float, d: float) -> float:
        return float(40 * d**-0.12)

    budgets = {10**7: (10**8, 10**9, 10**10)}
    asked = [Target(10**9, None, "gpt2-40m"), Target(10**7, 10**11)]
    report = fit_experiments(measured(budgets, law), predict=asked, draws=50)
    assert report.form == "d0"
    (predicted,) = of(report, "adapm").predictions
    assert (predicted.parameters, predicted.tokens) == (10**7, 10**11)
    assert {point.parameters for curve in of(report, "adapm").curves for point in curve.points} == {10**7}
    unsaid = "The law has no size in it, so it predicts nothing of other sizes: gpt2-40m."
    assert unsaid in report.notes
    sized = fit_experiments(measured(SIZES, power), predict=asked[:1], draws=50)
    assert len(of(sized, "adapm").predictions) == 1 and unsaid not in sized.notes


def test_nothing_at_all_is_a_sentence_too() -> None:
    experiment, runs = records(comparison_spec(), lambda *_run: None)
    assert of(fit_experiments([(experiment, runs)], draws=10), "adamw").verdict.startswith("Not fitted: 0 model sizes")


def test_experiments_without_a_common_baseline_are_refused() -> None:
    first = measured({10**6: (10**8,)}, power)
    second = measured({10**7: (10**8,)}, power, spec=comparison_spec(optimizers=("lion",), seeds=range(3)))
    with pytest.raises(FitError, match="'adamw' is not a candidate of every experiment; common ones: none"):
        fit_experiments([*first, *second])


def test_an_experiment_that_is_given_twice_counts_once() -> None:
    experiments = measured(SIZES, power)
    once, twice = fit_experiments(experiments, draws=50), fit_experiments([*experiments, experiments[0]], draws=50)
    assert twice == once
    assert of(twice, "adamw").points[0].n == 3


def test_a_loss_that_is_no_cross_entropy_is_refused() -> None:
    base = comparison_spec(optimizers=("adamw", "adapm"), seeds=range(3))
    regression = Workload.model_validate({"task": {"kind": "regression"}, "budget": {"steps": 10}})
    experiments = measured(SIZES, power, spec=base.model_copy(update={"workload": regression}))
    with pytest.raises(FitError, match="measures excess risk, which has no scaling law in nats"):
        fit_experiments(experiments)


def test_the_seeds_of_a_cell_are_no_sizes_of_their_own() -> None:
    """Two optimizers of one law; each of their cells is 0.5 % off, with all of its five seeds. 40 data sets: intervals
    hold what was planted in 95 %, equal optimizers drift apart in 5 %, within three standard errors (3.4 % each)."""
    world = World(name="", form="n0", law={"A": 12.0, "alpha": 0.08}, cells=line(5), seeds=5, shared=0.005)
    found = covered(world, 40, draws=80)
    assert found.no_law == 0 and found.compared == 40
    for name in ("alpha", "A", "predicted loss", "drift"):
        held, of = found.held[name]
        assert of == 40
        assert held >= 40 * (0.95 - 3 * 0.034), name
    assert found.drifts <= 40 * (0.05 + 3 * 0.034)
    assert found.other_exponents <= 40 * (0.05 + 3 * 0.034)


def test_equal_optimizers_seldom_drift_apart_where_all_budgets_of_a_size_share_an_error() -> None:
    """Two optimizers of one law; each size of each of them is 0.5 % off with all of its budgets, ten times what its
    cells are by themselves. 20 data sets; with cells taken for independent 9 of them are said to drift apart."""
    world = World(name="", form="nd", law=PLANTED, cells=grid(5, 3), seeds=2, shared=0.0005, shared_by_size=0.005)
    found = covered(world, 20, draws=80)
    for name in ("drift", "all losses apart", "alpha apart"):
        held, of = found.held[name]
        assert held >= of * (0.95 - 3 * 0.049), name
    assert found.drifts <= 20 * (0.05 + 3 * 0.049)


def with_losses(experiments: list[ExperimentWithRuns], candidate: str, by_seed: Mapping[int, float]) -> None:
    """Raise the losses of a candidate's runs in the last experiment, by nats."""
    experiment, runs = experiments[-1]
    changed = []
    for run in runs:
        more = by_seed.get(run.seed, 0.0) if run.candidate == candidate else 0.0
        assert run.result is not None and run.result.final_val_loss is not None
        raised = run.result.model_copy(update={"final_val_loss": run.result.final_val_loss + more})
        changed.append(run.model_copy(update={"result": raised}))
    experiments[-1] = (experiment, tuple(changed))


def test_a_run_that_spiked_is_left_out_and_counts_as_unstable() -> None:
    """One run of the largest size ends 0.5 nats too high: the law is that of the others, not far from what it was."""
    plain, spiked = measured(SIZES, power), measured(SIZES, power)
    with_losses(spiked, "adapm", {1: 0.5})
    before, after = (fit_experiments(each, draws=100) for each in (plain, spiked))
    was, now = of(before, "adapm"), of(after, "adapm")
    assert [point.n for point in now.points] == [3, 3, 3, 3, 2]
    assert now.coefficients["alpha"].value == pytest.approx(was.coefficients["alpha"].value, abs=0.01)
    assert was.instability is not None and was.instability.lost == 0
    assert now.instability is not None and (now.instability.lost, now.instability.runs) == (1, 15)
    assert "spiked" not in was.verdict
    assert (
        "Stability, apart from loss: 1 of 15 runs spiked or diverged (95 % interval 0 to 32 %), 0 of 15" in now.verdict
    )
    (note,) = [note for note in after.notes if "spiked" in note]
    assert note == "Runs whose loss spiked were left out; laws are those of stable runs: AdaPM (1)."
    assert not [note for note in before.notes if "spiked" in note]


def test_a_cell_whose_runs_are_all_high_has_not_spiked() -> None:
    """What all seeds of a cell have in common is its loss, be it off the law."""
    experiments = measured(SIZES, power)
    with_losses(experiments, "adapm", {0: 0.5, 1: 0.5, 2: 0.5})
    found = of(fit_experiments(experiments, draws=100), "adapm")
    assert found.instability is not None and found.instability.lost == 0
    assert [point.n for point in found.points] == [3] * 5


def test_what_is_assumed_of_a_sizes_budgets_is_a_note() -> None:
    def hoffmann(_name: str, n: float, d: float) -> float:
        return float(1.69 + 406.4 * n**-0.34 + 410.7 * d**-0.28)

    def about(sizes: Mapping[int, tuple[int, ...]]) -> list[str]:
        report = fit_experiments(measured(sizes, hoffmann), draws=50)
        return [note for note in report.notes if note.startswith("The budgets of a size may share an error")]

    (few,) = about({size: budgets for size, budgets in GRID.items() if size > 10**6})
    (many,) = about(GRID)
    assert "From so few sizes that error cannot be told" in few
    assert "From so few sizes" not in many
    assert about(SIZES) == []


def test_more_seeds_of_the_same_cells_narrow_no_interval_that_the_cells_make() -> None:
    """Seeds that say the same thrice over are no more evidence for a law than one."""
    one, three = (
        fit_experiments(measured(SIZES, bent, noise=0.0, seeds=seeds), form="n0", draws=200) for seeds in (1, 3)
    )
    for name in ("adamw", "adapm"):
        first, second = (of(report, name).coefficients["alpha"] for report in (one, three))
        assert second.low == pytest.approx(first.low)
        assert second.high == pytest.approx(first.high)


def bent(_name: str, n: float, _d: float) -> float:
    """A power law that every other size is 1 % off."""
    return float(12 * n**-0.08 * (1 + 0.01 * (list(SIZES).index(int(n)) % 2)))


def test_candidates_are_held_against_each_other_on_the_seeds_that_both_have() -> None:
    """AdaPM's worst seed has no model at one size: AdamW's mean there is over the same seeds as AdaPM's."""
    experiments = measured(SIZES, drifting(0, 0), noise=0.02)
    experiment, runs = experiments[-1]
    worst = max((run for run in runs if run.candidate == "adapm"), key=lambda run: run.result.final_val_loss)  # type: ignore[union-attr, arg-type, return-value]
    lost = worst.model_copy(update={"result": result(final_val_loss=None, verdict=Verdict.DIVERGED)})
    kept = tuple(lost if run is worst else run for run in runs)
    both = tuple(run for run in kept if run.seed != worst.seed)
    report = fit_experiments([*experiments[:-1], (experiment, kept)], form="n0", draws=100)
    alike = fit_experiments([*experiments[:-1], (experiment, both)], form="n0", draws=100)
    assert of(report, "adapm").loss_differences == of(alike, "adapm").loss_differences
    assert of(report, "adapm").drift == of(alike, "adapm").drift
    assert [point.n for point in of(report, "adamw").points] == [3] * len(SIZES)


def test_data_efficiency_has_the_errors_of_the_candidates_law_too() -> None:
    """The baseline follows its law to the digit: all that is not known is AdaPM's."""

    def law(name: str, n: float, d: float) -> float:
        cell = 1 + 0.002 * (-1) ** (round(np.log10(n)) + 2 * round(np.log10(d / 10**8)) // 2)
        return float((1.69 + 406.4 * n**-0.34 + 410.7 * d**-0.28) * (cell if name == "adapm" else 1))

    found = of(fit_experiments(measured(GRID, law, noise=0.0), draws=200), "adapm").data_efficiency
    widths = [each.high - each.low for each in found if each.low is not None and each.high is not None]
    assert len(widths) >= len(found) / 2
    assert min(widths) > 0.01


def test_a_typical_size_is_one_at_the_budgets_that_all_sizes_have() -> None:
    """AdaPM loses at the largest budget alone, which two sizes were never trained with."""

    def law(name: str, n: float, d: float) -> float:
        return power("adamw", n, d) + 0.3 * (name == "adapm" and d == 10**10)

    grid = {n: budgets if n > 10**7 else budgets[:2] for n, budgets in GRID.items()}
    found = of(fit_experiments(measured(grid, law), form="n0", draws=50), "adapm")
    assert found.typical_difference is not None
    assert found.typical_difference.difference.mean == pytest.approx(0, abs=0.005)
    assert "That is over the budgets that all sizes have: 2 cells are left out." in found.verdict


def test_runs_of_two_experiments_with_the_same_cells_are_paired_within_each() -> None:
    """Two equal optimizers, each 0.2 nats higher in the second experiment: paired across, one lies 0.1 below."""

    def shifted(up: float) -> Callable[[str, float, float], float]:
        return lambda _name, n, d: power("adamw", n, d) + up

    twice = [
        (experiment.model_copy(update={"id": f"{experiment.id}-{up}"}), runs)
        for up in (0.0, 0.2)
        for experiment, runs in measured(SIZES, shifted(up))
    ]
    typical = of(fit_experiments(twice, form="n0", draws=50), "adapm").typical_difference
    assert typical is not None and typical.difference.low is not None and typical.difference.high is not None
    assert typical.difference.low < 0 < typical.difference.high
    assert typical.difference.mean == pytest.approx(0, abs=0.005)


RATES = (1e-3, 2e-3, 4e-3)
SIX = {10**6 * 2**k: (10**9,) for k in range(6)}


def with_grids(best: Callable[[str, int], float], gap: Callable[[int], float] = lambda _k: 0.0) -> FitReport:
    """Six sizes without tuning, three rates each. A factor of two from the best rate of a candidate at the k-th size
    costs 0.02 nats; AdaPM lies `gap` above AdamW, and no farther."""
    random = np.random.default_rng(3)
    spec = comparison_spec(optimizers=("adamw", "adapm"), learning_rates=RATES, seeds=range(3))
    found = []
    for k, parameters in enumerate(SIX):
        shift = random.normal(0, 0.004, 3)

        def outcome(name: str, lr: float, seed: int, k: int = k, n: int = parameters, s=shift) -> Outcome:
            loss = 10 * n**-0.08 + 0.02 * abs(np.log2(lr / best(name, k))) + s[seed] + random.normal(0, 0.0005)
            loss += gap(k) * (name == "adapm")
            return result(final_val_loss=loss).model_copy(update={"parameters": n, "tokens": 10**9})

        found.append(records(spec, outcome, experiment=f"s{k}"))
    return fit_experiments(found, form="n0", draws=200)


def note_on_edges(report: FitReport) -> str:
    (note,) = [note for note in report.notes if note.startswith("Best learning rate at the edge")]
    return note


@pytest.mark.parametrize(("falls_by", "shown"), [(0.5, "drift"), (0.0, "typical difference")])
def test_no_optimizer_loses_ground_by_rates_beyond_the_edge_of_its_grid(falls_by: float, shown: str) -> None:
    """Two equal optimizers; the best rate of AdaPM lies below its grid, and falls with size."""
    report = with_grids(lambda name, k: 2e-3 if name == "adamw" else 5e-4 * 2 ** (-falls_by * k))
    found = of(report, "adapm")
    assert found.drift is not None and found.drift.rate_is_open, shown
    assert (found.drift.p_value, found.drift.change.low) == (None, None)
    assert "loses ground" not in found.verdict and "no verdict on drift" in found.verdict
    assert [each.p_value for each in found.against_baseline] == [None]
    assert found.typical_difference is not None
    assert found.typical_difference.difference.mean > 0 and found.typical_difference.difference.low is None
    assert all(each.difference.low is None for each in found.loss_differences)
    note = note_on_edges(report)
    assert "AdaPM at " + ", ".join(f"{n:,} parameters (0.001)" for n in SIX) in note
    assert "AdamW" not in note and "`extend_grid`" in note
    assert [each.open_lr for each in found.points] == [1e-3] * 6


def test_the_baselines_open_rates_make_no_candidate_better() -> None:
    found = of(with_grids(lambda name, k: 2e-3 if name == "adapm" else 5e-4 * 2 ** (-k / 2)), "adapm")
    assert "gains ground" not in found.verdict
    assert found.typical_difference is not None
    assert found.typical_difference.difference.mean < 0 and found.typical_difference.difference.high is None


@pytest.mark.parametrize(
    ("open_at", "change", "words"),
    [(5, 0.3, "no verdict"), (5, -0.3, "gains ground"), (0, 0.3, "loses ground"), (0, -0.3, "no verdict")],
)
def test_an_open_rate_forbids_what_it_could_turn_and_nothing_else(open_at: int, change: float, words: str) -> None:
    """A lower loss at the largest size is ground gained, one at the smallest size ground lost."""
    report = with_grids(
        lambda name, k: 1e-3 if name == "adapm" and k == open_at else 2e-3, lambda k: 0.5 + change * k / 5
    )
    found = of(report, "adapm")
    assert [each.open_lr for each in found.points] == [1e-3 if k == open_at else None for k in range(6)]
    assert words in found.verdict


def test_a_drift_is_said_where_rates_lie_inside_of_their_grids() -> None:
    report = with_grids(lambda _name, _k: 2e-3, lambda k: 0.3 * k / 5)
    found = of(report, "adapm")
    assert "it loses ground" in found.verdict
    assert found.drift is not None and found.drift.p_value is not None and found.drift.p_value < 0.05
    assert not [note for note in report.notes if "edge" in note]
    assert "intervals of differences to the baseline hold that" in " ".join(report.notes)


def test_what_grids_leave_open_between_their_rates_is_in_the_intervals() -> None:
    """Equal optimizers with their best rates inside. That of AdaPM falls to a third of a step beside the middle rate,
    so that it is missed by more with size: 0.007 nats that are no drift."""
    report = with_grids(lambda name, k: 2e-3 * 2 ** (-0.07 * k) if name == "adapm" else 2e-3)
    found = of(report, "adapm")
    assert [each.open_lr for each in found.points] == [None] * 6
    assert all(each.regret for each in found.points)
    assert "no drift shown" in found.verdict
    assert found.drift is not None and found.drift.change.low is not None and found.drift.change.low < 0
    typical = found.typical_difference
    assert typical is not None and typical.difference.low is not None and typical.difference.low < 0


@pytest.mark.parametrize("is_open", [True, False])
def test_an_open_rate_takes_the_bound_of_the_token_multiplier(is_open: bool) -> None:
    """AdaPM's losses are those of AdamW with 0.7 times the data, at the lowest rate of three."""
    spec = comparison_spec(optimizers=("adamw", "adapm"), learning_rates=RATES, seeds=range(2))
    random = np.random.default_rng(5)
    found = []
    for parameters, budgets in GRID.items():
        for tokens in budgets:

            def outcome(name: str, lr: float, seed: int, n: int = parameters, d: int = tokens) -> Outcome:
                best = 1e-3 if is_open and name == "adapm" else 2e-3
                loss = 1.69 + 406.4 * n**-0.34 + 410.7 * (d * (0.7 if name == "adapm" else 1)) ** -0.28
                loss *= 1 + 0.0005 * random.standard_normal() + 0.001 * seed + 5e-3 * abs(np.log2(lr / best))
                return result(final_val_loss=loss).model_copy(update={"parameters": n, "tokens": d})

            found.append(records(spec, outcome, experiment=f"e{parameters}-{tokens}"))
    report = fit_experiments(found, form="nd", draws=100)
    ratios = [each for each in of(report, "adapm").data_efficiency if each.tokens == 10**8]
    assert ratios
    assert all((each.high is None) is is_open for each in ratios)
    if is_open:
        assert "and 10,000,000,000 tokens (0.001)" in note_on_edges(report)


def test_a_rate_that_was_taken_over_is_open_where_it_was_tuned() -> None:
    """AdaPM's best rate is at the edge of the one grid, AdamW's inside; the larger sizes tried no other."""
    grids = [{"optimizer": name, "learning_rates": [0.002, 0.004, 0.008]} for name in ("adamw", "adapm")]
    tuning = {"seeds": [0], "extend_grid": 0, "at": "smallest-size", "transfer": "kept"}
    spec = scaling_spec(candidates=grids, tuning=tuning, seeds=[1, 2])
    best = {"adamw": 0.004, "adapm": 0.008}
    counts = {"gpt2-nano": 10**6, "gpt2-micro": 10**7, "gpt2-tiny": 10**8}
    planned = list(spec.first_runs())
    for cell in spec.cells()[1:]:
        rates = spec.comparison(cell, best)
        planned += [rates.planned_run(name, lr=lr, seed=seed) for name, lr in best.items() for seed in (1, 2)]
    smallest = spec.comparison(spec.cells()[0])
    planned += [smallest.planned_run(name, lr=lr, seed=seed) for name, lr in best.items() for seed in (1, 2)]
    runs = []
    for place, run in enumerate(planned):
        lr, size = run.spec.optimizer.lr, counts[run.spec.workload.model]
        loss = 10 * size**-0.08 + 10 * abs(lr - best[run.candidate]) + 0.001 * run.spec.seed
        ended = result(final_val_loss=loss).model_copy(update={"parameters": size, "tokens": 10**9})
        runs.append(run_record(run, place, ended))
    report = fit_experiments(comparisons(experiment_record(spec, len(runs)), tuple(runs)), form="n0", draws=50)
    assert [each.open_lr for each in of(report, "adapm").points] == [0.008] * 3
    assert [each.open_lr for each in of(report, "adamw").points] == [None] * 3


@pytest.mark.parametrize(
    ("tuning", "words"),
    [
        ("each size", "parameters: it loses ground"),
        ("kept", "parameters: with rates that larger sizes took over untried, it loses ground"),
    ],
)
def test_a_drift_at_untried_rates_is_said_to_be_one_of_these(tuning: Literal["each size", "kept"], words: str) -> None:
    """Two optimizers of which one truly loses ground, tuned at every size or at the smallest one."""
    world = tuned_laws.World(name="", tuning=tuning, moves=(0.0, 0.0))
    found = of(fit_experiments(tuned_laws.measured(world, 0.1, np.random.default_rng(0)), form="n", draws=100), "adapm")
    assert words in found.verdict


def test_a_drift_at_one_rate_a_size_is_said_to_be_one_of_these() -> None:
    assert (
        "at one rate a size, it loses ground" in of(fit_experiments(measured(SIZES, drifting(0, 0.1))), "adapm").verdict
    )
