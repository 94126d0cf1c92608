"""Verdicts on constructed evidence: what holds, what does not, what is open, and what is not there."""

import math
from collections.abc import Mapping
from typing import Any

import pytest

from orchestrator.experiments import ComparisonSpec
from orchestrator.fit_records import CandidateFit, Estimate, ExponentDifference, FitReport
from orchestrator.studies import debias_theorem, memory_table, momentum_theory, residual_stationarity
from orchestrator.studies.evidence import Evidence, PartEvidence, Scale
from orchestrator.studies.findings import TINY_WORDS, Answer, finding
from orchestrator.studies.registry import study
from tests.reference.made_evidence import DIVERGED, made_evidence, with_tokens
from tests.stores import result
from worker.published import PAPER_STATES
from worker.record import Observation, Verdict

BASE = (2.50, 2.52, 2.48)


def near(change: float) -> tuple[float, ...]:
    """The baseline's losses, moved, with a little spread of its own."""
    return tuple(loss + change + jitter for loss, jitter in zip(BASE, (0.001, -0.001, 0.0), strict=True))


def judged(name: str, ends: dict[str, Any], **more: Any) -> Any:
    return study(name).judge(made_evidence(study(name), ends, **more))


@pytest.mark.parametrize(
    ("mini", "answer"),
    [
        (near(-0.01), Answer.HOLDS),
        (near(0.02), Answer.HOLDS),
        (near(0.2), Answer.FAILS),
        ((2.5, 2.9, 2.1), Answer.UNDECIDED),
        ((DIVERGED, 2.5, 2.5), Answer.FAILS),
        ((DIVERGED,), Answer.FAILS),
    ],
)
def test_on_par_is_what_the_whole_interval_says(mini: Any, answer: Answer) -> None:
    """Within 0.035 nats, above it, open, or without a trained model."""
    found = judged("adapm-mini", {"adamw": BASE, "adam-mini": near(0.01), "adapm-mini": mini})
    assert found.measured is answer


def test_all_diverged_is_no_draw() -> None:
    ends = dict.fromkeys(("adamw", "adam-mini", "adapm-mini"), (DIVERGED,))
    assert judged("adapm-mini", ends).measured is Answer.FAILS


def test_runs_that_failed_leave_nothing_to_say() -> None:
    """Failed runs are gaps, not results."""
    found = judged("adapm-mini", {"adamw": BASE, "adam-mini": BASE})
    assert found.measured in (Answer.MISSING, Answer.UNDECIDED)


def test_a_missing_part_is_named() -> None:
    ends = {"corrected": near(-0.3), "uncorrected": BASE}
    found = judged("bias-correction", ends, only=["r = 5 %"])
    assert found.measured is Answer.MISSING
    assert "r = 50 %" in found.sentence


def test_runs_under_way_are_waited_for() -> None:
    found = judged("adapm-mini", {"adamw": BASE, "adam-mini": BASE, "adapm-mini": (2.5, None, 2.5)})
    assert found.sentence == "No verdict: runs of GPT-2 have not ended."


def test_correction_holds_in_part_where_the_factor_is_another() -> None:
    """Better at both ranks, but not 1.96 times as fast."""
    found = judged("bias-correction", {"corrected": near(-1.0), "uncorrected": BASE})
    assert found.measured is Answer.IN_PART
    assert "1.96" in found.sentence
    assert judged("bias-correction", {"corrected": near(1.0), "uncorrected": BASE}).measured is Answer.FAILS


def test_the_partition_of_table_1() -> None:
    """Low rank for V must hurt, the others must not."""
    ends = {"all full": BASE, "Em, O none": near(0.002), "AdaPM: Q, K, MLP low": near(0.02), "V low too": near(0.2)}
    assert judged("block-partition", ends).measured is Answer.HOLDS
    assert judged("block-partition", ends | {"V low too": near(-0.1)}).measured is Answer.IN_PART
    paper = judged("block-partition", {name: (*each, *each[:2]) for name, each in ends.items()}, scale=Scale.PAPER)
    assert {each.claimed for each in paper.measures[:4]} == {2.962, 2.964, 2.997, 3.143}


def test_ranks_and_intervals_overlap_or_not() -> None:
    plan = study("rank-and-interval").plans[Scale.TINY].parts[0].spec
    assert isinstance(plan, ComparisonSpec)
    ends = {each.name(): near(0.004 * place) for place, each in enumerate(plan.candidates)}
    ends["r = 5 %, T = 100"] = BASE
    assert judged("rank-and-interval", ends).measured is Answer.HOLDS
    assert judged("rank-and-interval", ends | {"r = 2 %": near(0.3)}).measured is Answer.IN_PART


def test_loss_curves_need_both_halves_of_the_claim() -> None:
    """On par with AdamW, and the others worse."""
    ends = {"adamw": BASE, "adapm": near(0.0), "adam-mini": near(0.2), "adafactor": near(0.3), "galore": near(0.4)}
    assert judged("loss-curves", ends).measured is Answer.HOLDS
    assert judged("loss-curves", ends | {"adam-mini": near(-0.2)}).measured is Answer.IN_PART


def test_the_field_has_somebody_better_and_smaller_or_not() -> None:
    plan = study("field").plans[Scale.TINY].parts[0].spec
    ends = {each.name(): near(0.1) for each in plan.candidates} | {"adapm": BASE}
    assert judged("field", ends).measured is Answer.HOLDS
    found = judged("field", ends | {"muon": near(-0.2)})
    assert found.measured is Answer.FAILS
    assert "Muon" in found.sentence
    assert judged("field", ends | {"adapm": (DIVERGED,)}).measured is Answer.MISSING


@pytest.mark.parametrize(
    ("name", "ends"),
    [
        ("sft", {"adamw": BASE, "adapm": near(0.01)}),
        ("rlhf", {"adamw": (-0.9, -0.91, -0.89), "adapm": (-0.9, -0.9, -0.9)}),
        ("solver", {"svd": BASE, "subspace": near(0.0), "scaled_gd": near(0.0), "gd": near(0.01)}),
    ],
)
def test_on_par_elsewhere(name: str, ends: dict[str, Any]) -> None:
    assert judged(name, ends).measured is Answer.HOLDS


def test_a_tiny_model_is_no_evidence_for_a_large_one() -> None:
    """Whatever it shows, the claim is about others; theorems have no size."""
    evidence = made_evidence(study("adapm-mini"), {"adamw": BASE, "adam-mini": BASE, "adapm-mini": near(0.0)})
    found = finding(study("adapm-mini").judge(evidence), evidence, about_large_models=True)
    assert (found.answer, found.measured) == (Answer.BEYOND, Answer.HOLDS)
    assert found.sentence.endswith(TINY_WORDS)
    paper = evidence.model_copy(update={"scale": Scale.PAPER})
    judgement = study("adapm-mini").judge(evidence)
    assert finding(judgement, paper, about_large_models=True).answer is Answer.HOLDS
    assert finding(judgement, evidence, about_large_models=False).answer is Answer.HOLDS
    assert {each.name for each in map(study, ("memory-table", "debias-theorem", "momentum-theory"))} == {
        each for each in ("memory-table", "debias-theorem", "momentum-theory") if not study(each).about_large_models
    }


def theory(risks: Any) -> Any:
    """Theorem 1's evidence with `risks(regime, candidate, steps, seed)`."""
    one = study("momentum-theory")
    parts: list[PartEvidence] = []
    for part in one.plans[Scale.TINY].parts:
        regime, steps = part.name.split(", ")[0], part.spec.workload.budget.steps
        ends = {
            name: [with_tokens(risks(regime, name, steps, seed), steps) for seed in part.spec.seeds]
            for name in ("SGD", "ASGD")
        }
        parts += made_evidence(one, ends, only=[part.name]).parts
    return one.judge(Evidence(study=one.name, scale=Scale.TINY, parts=tuple(parts)))


def test_theorem_1_is_found_where_it_was_planted() -> None:
    """Exponents come back, momentum helps in the first regime and hurts in the second."""

    def risk(regime: str, name: str, steps: int, seed: int) -> float:
        rate = {"a > b": -0.3, "a <= b": -0.6}[regime]
        factor = {("a > b", "ASGD"): 0.6, ("a <= b", "ASGD"): 1.7}.get((regime, name), 1.0)
        return float(factor * steps**rate * (1 + 0.01 * seed))

    found = theory(risk)
    assert found.measured is Answer.HOLDS
    exponents = {each.name: each.value for each in found.measures}
    assert exponents["exponent of SGD, a > b"] == pytest.approx(-0.3)
    assert exponents["exponent of ASGD, a <= b"] == pytest.approx(-0.6)


def test_theorem_1_fails_where_momentum_helps_in_both_regimes_or_risks_stand_still() -> None:
    def helped(regime: str, name: str, steps: int, seed: int) -> float:
        return float((0.5 if name == "ASGD" else 1.0) * steps**-0.6 * (1 + 0.01 * seed))

    def still(regime: str, name: str, steps: int, seed: int) -> float:
        return 1.0 + 0.001 * seed

    assert theory(helped).measured is Answer.IN_PART
    assert theory(still).measured is Answer.FAILS


def test_slopes_of_a_power_law_are_its_exponent() -> None:
    assert momentum_theory.slope({100: 2.0, 400: 1.0, 1600: 0.5}) == pytest.approx(-0.5)


def memory(factor: float, bf16: float = 0.5) -> Any:
    computed = {
        f"{model}/{each.optimizer}/float32": factor * each.gigabytes * 1e9
        for model in memory_table.MODELS
        for each in PAPER_STATES
        if model in each.models
    }
    computed |= {key.replace("float32", "bfloat16"): bf16 * value for key, value in computed.items() if "adapm" in key}
    return memory_table.judge(Evidence(study="memory-table", scale=Scale.PAPER, computed=computed))


def test_the_memory_table_is_met_or_the_excess_is_named() -> None:
    assert memory(1.005).measured is Answer.HOLDS
    found = memory(1.1)
    assert found.measured is Answer.IN_PART
    assert "gpt2-1.5b adapm-mini 0.81 GB for 0.74" in found.sentence
    assert any("With state in bf16 4 of them pass" in note for note in found.notes)
    lacking = Evidence(study="memory-table", scale=Scale.TINY, computed={"llama-340m/adamw/float32": 1.0})
    assert memory_table.judge(lacking).measured is Answer.MISSING


def debias(factor: float, **more: float) -> Any:
    values = {"C": 1.0}
    for t in debias_theorem.STEPS:
        limit = debias_theorem.bound(1.0, t)
        values |= {f"bias/{t}": factor * limit, f"error/{t}": 1e-6, f"plain/{t}": 9.0}
    return debias_theorem.judge(Evidence(study="debias-theorem", scale=Scale.TINY, computed=values | more))


def test_theorem_2_is_held_against_its_bound() -> None:
    """Below it, above it by the factor that the proof forgets, and above even that."""
    assert debias(0.9).measured is Answer.HOLDS
    forgotten = debias(1 / debias_theorem.BETA1)
    assert forgotten.measured is Answer.IN_PART
    assert "The larger bound is exceeded nowhere." in forgotten.notes
    assert any("The larger bound is exceeded at t = 1, 2" in note for note in debias(1.5).notes)
    lacking = Evidence(study="debias-theorem", scale=Scale.TINY, computed={"C": 1.0})
    assert debias_theorem.judge(lacking).measured is Answer.MISSING


def observed(probe: str, step: int, **values: float) -> Observation:
    names = ("transformer.wte.weight", "h.0.attn.c_attn.weight:query", "h.0.attn.c_attn.weight:key",
             "h.0.attn.c_attn.weight:value", "h.0.attn.c_proj.weight", "h.0.mlp.c_fc.weight")  # fmt: skip
    return Observation(step=step, probe=probe, blocks=dict.fromkeys(names, values))


def test_spectra_and_sparsity_are_read_at_the_first_observed_step() -> None:
    seen = [
        observed("gradient-sparsity", 20, rows_near_zero=0.2, columns_near_zero=0.8),
        observed("momentum-spectrum", 20, energy_top_5_percent=0.7),
        observed("momentum-spectrum", 40, energy_top_5_percent=0.1),
    ]
    sparse = judged("gradient-sparsity", {"adamw": BASE}, observations=seen)
    spectral = judged("momentum-spectrum", {"adamw": BASE}, observations=seen)
    assert {each.name: each.value for each in sparse.measures}["attention output"] == pytest.approx(0.8)
    assert (sparse.measured, spectral.measured) == (Answer.HOLDS, Answer.HOLDS), "equal values need no interval"
    assert {each.name: each.value for each in spectral.measures}["MLP"] == pytest.approx(0.7)
    assert judged("momentum-spectrum", {"adamw": (DIVERGED,)}, observations=seen).measured is Answer.MISSING
    assert judged("momentum-spectrum", {"adamw": BASE}).measured is Answer.MISSING


def test_a_drift_of_the_residuals_is_measured_in_logarithms() -> None:
    """Quantiles that grow by 2 % a step drift by 20 % from one half of the window to the other."""
    quantiles = residual_stationarity.QUANTILES
    seen = [observed("residual", step, **dict.fromkeys(quantiles, math.exp(0.02 * step))) for step in range(20)]
    assert residual_stationarity.observe(seen) == pytest.approx(dict.fromkeys(residual_stationarity.ROLES, 0.2))
    assert residual_stationarity.observe(seen[:19]) == {}


def scaling(difference: tuple[float | None, float | None], error: float = 0.005) -> Any:
    """The laws of AdamW, exponent 0.2, and of AdaPM, whose exponent differs by an interval."""
    one = study("scaling-law")
    evidence = made_evidence(one, {"adamw": BASE, "adapm": BASE}, fit=law(difference, error))
    return one.judge(evidence)


def law(difference: tuple[float | None, float | None], error: float) -> FitReport:
    exponent = Estimate(value=0.2, low=0.19, high=0.21)
    apart = ExponentDifference(
        exponent="beta",
        difference=Estimate(value=0.0, low=difference[0], high=difference[1]),
        p_value=None,
        p_value_holm=None,
    )
    fits = tuple(
        CandidateFit(
            candidate=name,
            title=name,
            is_baseline=name == "adamw",
            points=(),
            coefficients={"B": exponent, "beta": exponent},
            relative_error=error,
            held_out=None,
            predictions=(),
            against_baseline=() if name == "adamw" else (apart,),
            data_efficiency=(),
            verdict="",
        )
        for name in ("adamw", "adapm")
    )
    return FitReport(experiments=(), form="d0", formula="B D^-beta", baseline="adamw", draws=9, fits=fits, notes=())


def test_a_law_is_kept_lost_or_open() -> None:
    """The exponent's difference excludes a tenth less, is all below zero, or leaves both open; or there is no law."""
    assert scaling((-0.01, 0.01)).measured is Answer.HOLDS
    assert scaling((-0.05, -0.01)).measured is Answer.FAILS
    assert scaling((-0.05, 0.05)).measured is Answer.UNDECIDED
    assert scaling((None, None)).measured is Answer.UNDECIDED
    assert scaling((-0.01, 0.01), error=0.05).measured is Answer.FAILS
    one = study("scaling-law")
    assert one.judge(made_evidence(one, {"adamw": BASE, "adapm": BASE})).measured is Answer.MISSING


def capped(batches: Mapping[str, float], speeds: Mapping[str, float | tuple[float, ...]]) -> Any:
    """Device-hours' evidence: micro-batch and tokens a second of each seed under every cap; who has none ran out of
    memory."""

    def trained(name: str, speed: float) -> Any:
        update = {"micro_batch_sequences": round(batches[name]), "tokens_per_second": speed}
        return result(final_val_loss=3.0).model_copy(update=update)

    lost = result(final_val_loss=None, verdict=Verdict.OUT_OF_MEMORY)
    ends: dict[str, Any] = {name: [lost] * 3 for name in ("adamw", "adam-mini", "adapm", "adapm-mini")}
    for name, speed in speeds.items():
        ends[name] = [trained(name, one) for one in (speed if isinstance(speed, tuple) else (speed,) * 3)]
    return judged("gpu-hours", ends)


def test_hours_under_a_cap() -> None:
    """Larger and faster holds; where AdamW does not fit, who trains at all wins; slower does not hold."""
    small = {"adamw": 4, "adam-mini": 5, "adapm": 6, "adapm-mini": 8}
    assert capped(small, {name: 100.0 * size for name, size in small.items()}).measured is Answer.HOLDS
    assert capped(small, {name: 100.0 / size for name, size in small.items()}).measured is Answer.FAILS
    assert capped(small | {"adapm": 3}, {name: 100.0 * size for name, size in small.items()}).measured is Answer.IN_PART
    only = {"adapm-mini": 2.0}
    found = capped(only, {"adapm-mini": 10.0})
    assert found.measured is Answer.IN_PART
    assert "adamw does not fit" in found.sentence
    assert capped({}, {}).measured is Answer.MISSING


def test_hours_that_chance_explains_are_undecided() -> None:
    """One seed is faster, another slower than AdamW's; the ratio of each pair counts, not of the means."""
    small = {"adamw": 4, "adam-mini": 5, "adapm": 6, "adapm-mini": 8}
    speeds = dict.fromkeys(small, (100.0, 100.0, 100.0)) | {"adapm": (50.0, 100.0, 200.0)}
    found = capped(small, speeds)
    assert found.measured is Answer.UNDECIDED
    share = next(each for each in found.measures if each.name.startswith("adapm, "))
    assert share.value == pytest.approx(1.0)
    assert share.low == pytest.approx(1 / share.high) and share.low < 0.5 and share.n == 3
