"""Fits over experiments: what each optimizer's law is, how two compare, which sizes they predict, and no NaN wherever
runs are missing."""

import json
from collections.abc import Callable, Mapping

import numpy as np
import pytest

from benchmarks.scaling_fit import HOFFMANN, STRAIGHT, World, covered, grid, line
from orchestrator.analysis.laws.fit import FitError, fit_experiments
from orchestrator.analysis.laws.records import CandidateFit, Estimate, FitReport
from orchestrator.analysis.laws.targets import Target, is_target, larger_presets, target
from orchestrator.analysis.laws.verdicts import no_law
from orchestrator.jobs import RunStatus
from orchestrator.kinds.comparison import ComparisonSpec
from orchestrator.records import Conclusion, ExperimentWithRuns
from tests.factories.comparison import Outcome, evaluated_on, records
from tests.factories.stores import comparison_spec, result
from worker.records.result import Result, Verdict
from worker.spec.run import Workload

LawOf = Callable[[str, float, float], float]
SIZES = {10**6: (2 * 10**7,), 10**7: (2 * 10**8,), 10**8: (2 * 10**9,), 10**9: (2 * 10**10,), 3 * 10**9: (6 * 10**10,)}
GRID = {10**k: (10**8, 10**9, 10**10) for k in (6, 7, 8, 9)}
DIVERGED = result(final_val_loss=None, verdict=Verdict.DIVERGED)


def measured(
    sizes: Mapping[int, tuple[int, ...]], law: LawOf, *, noise: float = 0.002, spec: ComparisonSpec | None = None
) -> list[ExperimentWithRuns]:
    """Return an experiment for each model size and token budget, on validation text without an error; losses follow the
    law, with noise that equal seeds share, and a quarter of it of their own."""
    random = np.random.default_rng(0)
    experiments: list[ExperimentWithRuns] = []
    base = spec or evaluated_on(comparison_spec(optimizers=("adamw", "adapm"), seeds=range(3)))
    for n, d in ((n, d) for n, budgets in sizes.items() for d in budgets):
        shift, offsets = random.normal(0, noise, 3), random.normal(0, noise / 4, (3, 2))

        def outcome(name: str, _lr: float, seed: int, n: int = n, d: int = d, s=shift, o=offsets) -> Outcome:
            loss = law(name, n, d) * float(np.exp(s[seed] + o[seed, int(name == "adapm")]))
            return result(final_val_loss=loss).model_copy(update={"parameters": n, "tokens": d})

        experiments.append(records(base, outcome, experiment=f"e{n}-{d}"))
    return experiments


def power(name: str, n: float, _d: float) -> float:
    """AdaPM falls faster: 0.30 against 0.25."""
    return float(1.8 + 50 * n ** -(0.30 if name == "adapm" else 0.25))


def hoffmann(_name: str, n: float, d: float) -> float:
    return float(1.69 + 406.4 * n**-0.34 + 410.7 * d**-0.28)


def apart(first: float, last: float) -> LawOf:
    """AdaPM's loss above AdamW's by `first` nats at the smallest size, and by `last` at the largest."""
    smallest, largest = min(SIZES), max(SIZES)

    def law(name: str, n: float, _d: float) -> float:
        share = np.log(n / smallest) / np.log(largest / smallest)
        return float(1.8 + 50 * n**-0.25 + (name == "adapm") * (first + share * (last - first)))

    return law


def of(report: FitReport, candidate: str) -> CandidateFit:
    json.dumps(report.model_dump(mode="json"), allow_nan=False)
    return next(fit for fit in report.fits if fit.candidate == candidate)


def with_results(
    experiment: ExperimentWithRuns, change: Callable[[str, int, Result], Result | None]
) -> ExperimentWithRuns:
    """The experiment whose runs have ended otherwise."""
    record, runs = experiment
    changed = [
        run.model_copy(update={"result": run.result and change(run.candidate, run.seed, run.result)}) for run in runs
    ]
    return record, tuple(changed)


def test_each_optimizer_gets_its_law_and_the_two_are_compared() -> None:
    report = fit_experiments(measured(SIZES, power), predict=[(10**10, None)], draws=60)
    assert (report.form, report.baseline) == ("n", "adamw")
    adamw, adapm = of(report, "adamw"), of(report, "adapm")
    for fit, true in ((adamw, 0.25), (adapm, 0.30)):
        alpha = fit.coefficients["alpha"]
        assert alpha.low is not None and alpha.high is not None and alpha.low <= true <= alpha.high
    assert [gap.parameters for gap in adapm.loss_differences] == list(SIZES)
    for gap in adapm.loss_differences:
        low, high = gap.difference.bounds()
        assert low <= power("adapm", gap.parameters, 0) - power("adamw", gap.parameters, 0) <= high
        assert high - low < 0.05
    assert (adamw.loss_differences, adamw.change, adamw.conclusion) == ((), None, Conclusion.BASELINE)
    (predicted,) = adapm.predictions
    assert predicted.tokens == 2 * 10**11
    assert predicted.loss.value == pytest.approx(power("adapm", 1e10, 0), abs=0.02)
    assert adapm.held_out_error is not None and abs(adapm.held_out_error) < 0.05
    assert "Tokens change with the model: alpha is the exponent of both together." in report.notes


@pytest.mark.parametrize(
    ("first", "last", "conclusion", "words"),
    [
        (0.0, 0.1, Conclusion.WORSE, "From 1,000,000 parameters on it loses 0."),
        (0.1, 0.0, Conclusion.AS_GOOD, "From 1,000,000 parameters on it gains 0."),
        (0.05, 0.05, Conclusion.WORSE, "From 1,000,000 parameters on the difference is not shown to change"),
        (-0.05, -0.05, Conclusion.BETTER, "From 1,000,000 parameters on the difference is not shown to change"),
        (0.0, 0.0, Conclusion.AS_GOOD, "From 1,000,000 parameters on the difference is not shown to change"),
    ],
)
def test_the_conclusion_is_on_the_largest_size_and_the_change_says_where_it_leads(
    first: float, last: float, conclusion: Conclusion, words: str
) -> None:
    spec = evaluated_on(comparison_spec(optimizers=("adamw", "adapm"), seeds=range(3)))
    spec = spec.model_copy(update={"equivalence_margin": 0.03})
    fit = of(fit_experiments(measured(SIZES, apart(first, last), noise=0.001, spec=spec), draws=60), "adapm")
    assert fit.change is not None and fit.change.value == pytest.approx(last - first, abs=0.03)
    assert (fit.conclusion, words in fit.verdict) == (conclusion, True), fit.verdict


def test_who_lost_a_run_that_the_baseline_kept_is_not_better() -> None:
    """And its law is that of the seeds that both have."""
    experiments = measured(SIZES, apart(-0.1, -0.1), noise=0.001)
    experiments[0] = with_results(
        experiments[0], lambda name, seed, was: DIVERGED if (name, seed) == ("adapm", 0) else was
    )
    fit = of(fit_experiments(experiments, draws=50), "adapm")
    assert fit.conclusion is Conclusion.UNSTABLE and fit.points[0].n == 2
    assert "1 of 15 runs was lost" in fit.verdict
    assert fit.loss_differences[-1].difference.is_better()


def test_runs_that_have_not_ended_are_a_note() -> None:
    experiments = measured(SIZES, power)
    record, runs = experiments[0]
    waits = {"result": None, "status": RunStatus.QUEUED, "ended_at": None}
    experiments[0] = record, tuple(run.model_copy(update=waits) if run.candidate == "adapm" else run for run in runs)
    report = fit_experiments(experiments, draws=50)
    assert report.notes[0].startswith("3 runs not ended")
    counts = of(report, "adapm").instability
    assert counts is not None and (counts.lost, counts.runs) == (0, 12)


@pytest.mark.parametrize(
    ("budgets", "tokens"),
    [
        (dict.fromkeys(SIZES, (10**8,)), 10**8),
        (dict.fromkeys(SIZES, (10**8, 4 * 10**8)), 4 * 10**8),
        ({n: (10 * n, 20 * n) for n in SIZES}, 20 * 10**10),
        ({n: (10**8 if n < 10**9 else 10**8 + 5000,) for n in SIZES}, 10**8),
        ({n: (round(1000 * n**0.5),) for n in SIZES}, 10**8),
    ],
    ids=["one budget", "two budgets", "two ratios", "a step more", "the root of the size"],
)
def test_a_law_of_sizes_is_one_at_a_budget_for_each_size(budgets: dict[int, tuple[int, ...]], tokens: int) -> None:
    """Its predictions hold at the tokens that they name."""
    report = fit_experiments(measured(budgets, hoffmann, noise=1e-5), form="n", predict=[(10**10, 123)], draws=50)
    fit = of(report, "adamw")
    (predicted,) = fit.predictions
    assert predicted.tokens == pytest.approx(tokens, rel=1e-4)
    assert predicted.loss.value == pytest.approx(hoffmann("", 10**10, tokens), rel=0.02)
    assert len([point for point in fit.points if point.fitted is not None]) == len(SIZES)
    left_out = "The law has each size at its largest budget, without 5 other cells"
    assert any(note.startswith(left_out) for note in report.notes) == (len(fit.points) > len(SIZES))
    follows = "Tokens change with the model: alpha is the exponent of both together."
    assert (follows in report.notes) == (len({point.tokens for point in fit.points if point.fitted}) > 2)


def test_three_sizes_at_three_budgets_tell_a_law_of_both() -> None:
    report = fit_experiments(measured(GRID, hoffmann, noise=0.0005), draws=50)
    assert report.form == "nd"
    assert len(of(report, "adapm").curves) == 3


def test_a_law_of_tokens_alone_predicts_no_other_size() -> None:
    def law(_name: str, _n: float, d: float) -> float:
        return float(40 * d**-0.12)

    targets = [Target(10**9, None, "gpt2-40m"), Target(10**7, 10**11)]
    report = fit_experiments(measured({10**7: (10**8, 10**9, 10**10)}, law), predict=targets, draws=50)
    assert report.form == "d0"
    (predicted,) = of(report, "adapm").predictions
    assert (predicted.parameters, predicted.tokens) == (10**7, 10**11)
    assert {point.parameters for curve in of(report, "adapm").curves for point in curve.points} == {10**7}
    assert "The law has no size in it, so it predicts nothing of other sizes: gpt2-40m." in report.notes


@pytest.mark.parametrize(("count", "sentence"), [(1, "Not fitted: 1 model size;"), (2, "Not fitted: 2 model sizes;")])
def test_too_few_sizes_are_a_sentence(count: int, sentence: str) -> None:
    fit = of(fit_experiments(measured(dict([*SIZES.items()][:count]), power), form="n0", draws=50), "adapm")
    assert fit.verdict.startswith(sentence)
    assert (fit.coefficients, fit.loss_differences, fit.held_out_error) == ({}, (), None)


@pytest.mark.parametrize("law", [lambda _name, _n, _d: 2.5, lambda _name, n, _d: 0.5 * n**0.05])
def test_without_a_law_nothing_is_predicted(law: LawOf) -> None:
    report = fit_experiments(measured(SIZES, law, noise=0.01), form="n0", predict=[(10**10, None)], draws=50)
    for name in ("adamw", "adapm"):
        fit = of(report, name)
        assert fit.verdict.startswith("No law found: the loss is not shown to fall with size: alpha = ")
        assert (fit.predictions, fit.curves, fit.held_out_error) == ((), (), None)
        assert (fit.loss_differences, fit.change) == ((), None)


def test_a_law_beside_none_predicts_alone() -> None:
    """The baseline has none, so there is nothing to compare the other one with."""
    report = fit_experiments(
        measured(SIZES, lambda name, n, _d: 3.0 if name == "adamw" else 5 * n**-0.05, noise=0.01),
        form="n0", predict=[(10**10, None)], draws=100,
    )  # fmt: skip
    fit = of(report, "adapm")
    assert (of(report, "adamw").predictions, len(fit.predictions)) == ((), 1)
    assert (fit.change, fit.conclusion) == (None, Conclusion.UNDECIDED)


def test_no_law_is_one_at_its_bound_or_with_an_interval_about_zero() -> None:
    assert no_law({"alpha": Estimate(value=0.1, low=0.05, high=0.15)}) is None
    assert no_law({}) is None
    for estimate in ((3.0, 2.0, 4.0), (0.1, -0.1, 0.3), (1e-12, 1e-12, 1e-12), (0.1, None, None)):
        assert no_law({"alpha": Estimate(value=estimate[0], low=estimate[1], high=estimate[2])}) is not None


def test_what_cannot_be_fitted_together_is_refused() -> None:
    first = measured({10**6: (10**8,)}, power)
    second = measured({10**7: (10**8,)}, power, spec=comparison_spec(optimizers=("lion",), seeds=range(3)))
    with pytest.raises(FitError, match="'adamw' is not a candidate of every experiment; common ones: none"):
        fit_experiments([*first, *second])
    regression = Workload.model_validate({"task": {"kind": "regression"}, "budget": {"steps": 10}})
    base = comparison_spec(optimizers=("adamw", "adapm"), seeds=range(3))
    with pytest.raises(FitError, match="measures excess risk, which has no scaling law in nats"):
        fit_experiments(measured(SIZES, power, spec=base.model_copy(update={"workload": regression})))


def test_an_experiment_that_is_given_twice_counts_once_and_the_answer_is_the_same_each_time() -> None:
    experiments = measured(SIZES, power)
    first, second = fit_experiments(experiments, draws=50), fit_experiments([*experiments, experiments[0]], draws=50)
    assert second == first
    assert of(second, "adamw").points[0].n == 3


def test_what_experiments_differ_in_is_one_note() -> None:
    experiments = measured(SIZES, power)
    record, runs = experiments[0]
    workload = record.spec.workload
    budget = workload.budget.model_copy(update={"batch_sequences": 4 * workload.budget.batch_sequences})
    changed = record.spec.model_copy(update={"workload": workload.model_copy(update={"budget": budget})})
    report = fit_experiments([(record.model_copy(update={"spec": changed}), runs), *experiments[1:]], draws=20)
    sequences = f"batch ({workload.budget.batch_sequences}, {budget.batch_sequences} sequences)"
    assert any(note.startswith(f"The experiments differ in {sequences}") for note in report.notes)


def test_a_candidate_at_the_edge_of_what_was_tried_is_not_called_worse() -> None:
    """Its lowest loss is at the highest of two rates, and a better one may lie beyond."""
    spec = comparison_spec(optimizers=("adamw", "adapm"), learning_rates=(1e-3, 2e-3), seeds=range(3))
    spec = evaluated_on(spec)
    experiments = []
    for n, (d,) in SIZES.items():

        def outcome(name: str, lr: float, seed: int, n: int = n, d: int = d) -> Outcome:
            loss = apart(0.1, 0.1)(name, n, d) * (1 + 0.001 * seed + 0.1 * (lr < 2e-3))
            return result(final_val_loss=loss).model_copy(update={"parameters": n, "tokens": d})

        experiments.append(records(spec, outcome, experiment=f"e{n}"))
    report = fit_experiments(experiments, draws=50)
    adapm = of(report, "adapm")
    assert adapm.loss_differences[-1].difference.is_worse()
    assert adapm.conclusion is Conclusion.UNDECIDED
    assert any(note.startswith("Best learning rate at the edge") and "AdaPM" in note for note in report.notes)


@pytest.mark.parametrize(
    "world",
    [
        World(form="n0", law=STRAIGHT, cells=line(5)),
        World(form="nd", law=HOFFMANN, cells=grid(3, 3)),
    ],
    ids=["n0", "nd"],
)
def test_intervals_hold_equal_optimizers_are_seldom_told_apart_and_a_true_difference_is_found(world: World) -> None:
    """20 data sets a world: within three standard errors (5 % each) of 95 %, and of 5 %."""
    equal = covered(world, 20, draws=50)
    for name, share in equal["held"].items():
        assert share >= 0.95 - 3 * 0.05, name
    assert equal["told apart"] <= 0.05 + 3 * 0.05
    assert equal["changes"] <= 0.05 + 3 * 0.05
    assert covered(World(**(vars(world) | {"gap": 0.05})), 10, draws=50)["worse"] >= 0.8


def test_targets_are_models_or_numbers() -> None:
    assert target("1e9", "byte") == Target(10**9)
    assert target("gpt2-tiny", "byte") == Target(858_880, None, "gpt2-tiny")
    assert target("gpt2-tiny", "bpe-1256").parameters == 858_880 + 1000 * 128
    assert larger_presets({"gpt2-nano", "gpt2-tiny"}, "byte") == ("gpt2-mini", "gpt2-40m")
    assert larger_presets({"linear"}, "byte") == ()
    for wrong in ("gpt9", "", "0", "-1", "nan", "inf", "1e16"):
        with pytest.raises(ValueError, match="must be a number of parameters"):
            is_target(wrong)
